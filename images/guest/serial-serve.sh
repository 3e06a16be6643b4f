# SPDX-License-Identifier: GPL-2.0-only
# Serves the host's requests over a console: arguments FOLDER TOKEN.
#   host → guest   a line "NUMBER VERB ARGUMENT..."; behind "add", so many bytes of base64
#   guest → host   lines "<TOKEN NUMBER WORD...>", the last word of a reply "end"; behind "piece", base64
# Anything may stand between, before and behind what we print: the kernel prints where it likes. So everything has a
# checksum, and every request may come twice.
folder=$1 token=$2
exec 2>/dev/null
# Commands get process groups of their own, by job control where there is a controlling terminal.
set -m
case $- in
*m*) session= ;;
*) session=setsid ;;
esac
# Where we may say so, the serial port takes more than half its 16 bytes before it interrupts: twice as fast.
device=$(tty)
echo 14 >"/sys/class/tty/${device##*/}/rx_trig_bytes"
interrupted=
trap interrupted=yes INT
trap : HUP # the next "read" fails then, and what is ours goes
command= pump_out= pump_err=

say() {
	printf '\n<%s %s %s>\n' "$token" "$number" "$*"
}

begin() { # NAME: "add" fills this file of ours from now on
	target=$folder/$1 added=0
	: >"$target"
	say done
}

open() { # MODE: "add" fills the file that is named in our file "path"
	target=$(cat "$folder/path"; echo .) added=0
	target=${target%.}
	if LC_ALL=C dd if=/dev/null of="$target" 2>"$folder/why"; then
		chmod "$1" "$target" # the kernel's own files keep their modes
		say done
	else
		say failed
	fi
}

add() { # INDEX SIZE CHECKSUM
	head -c "$2" >"$folder/encoded"
	base64 -d "$folder/encoded" >"$folder/block"
	sum=$(md5sum <"$folder/block")
	if [ "${sum%% *}" != "$3" ]; then
		say damaged
	elif [ "$1" -ne "$added" ]; then
		say done # the reply was lost
	elif LC_ALL=C cat "$folder/block" 2>"$folder/why" >>"$target"; then
		added=$((added + 1))
		say done
	else
		say failed
	fi
}

finish() {
	if [ "$command" ]; then
		kill -KILL "-$pump_out" "-$pump_err"
		rm -f "$folder"/out* "$folder"/err*
		command=
	fi
	say done
}

start() {
	if [ ! "$command" ]; then
		mkfifo "$folder/out" "$folder/err"
		$session sh "$folder/pump" "$folder" out <"$folder/out" >/dev/null &
		pump_out=$!
		$session sh "$folder/pump" "$folder" err <"$folder/err" >/dev/null &
		pump_err=$!
		$session sh "$folder/script" </dev/null >"$folder/out" 2>"$folder/err" &
		command=$!
	fi
	say done
}

stop() {
	if [ "$command" ]; then
		kill -KILL "-$command"
		for _ in 1 2 3 4 5 6 7 8 9 10; do
			kill -0 "-$command" || break
			sleep 0.1 || sleep 1
		done
	fi
	finish
}

has_ended() {
	read -r _ _ state _ <"/proc/$1/stat" || return 0
	[ "$state" = Z ]
}

next() { # OUT ERR: the numbers of the pieces that the host does not have yet
	[ ! -e "$folder/out.$(($1 - 1))" ] || rm "$folder/out.$(($1 - 1))"
	[ ! -e "$folder/err.$(($2 - 1))" ] || rm "$folder/err.$(($2 - 1))"
	if [ -e "$folder/out.$1" ]; then
		say stdout
		piece "out.$1" 0 64
	elif [ -e "$folder/err.$2" ]; then
		say stderr
		piece "err.$2" 0 64
	elif has_ended "$command" && has_ended "$pump_out" && has_ended "$pump_err" &&
		[ ! -e "$folder/out.$1" ] && [ ! -e "$folder/err.$2" ]; then
		say over
	else
		say none
	fi
}

piece() { # NAME SKIP COUNT, in KiB
	dd if="$folder/$1" of="$folder/piece" bs=1024 skip="$2" count="$3"
	sum=$(md5sum <"$folder/piece")
	say piece "${sum%% *}"
	base64 "$folder/piece"
}

while interrupted= verb= && { read -r number verb first second third || [ "$interrupted" ]; }; do
	case $verb in
	begin | open | add | start | stop | finish | next | piece)
		$verb $first $second $third
		say end
		;;
	leave)
		stop >/dev/null
		rm -rf "$folder"
		stty sane
		say done
		say end
		exit 0
		;;
	esac
done
# The console is gone, and with it what job control takes to start another program in front.
[ ! "$command" ] || kill -KILL "-$command" "-$pump_out" "-$pump_err"
rm -rf "$folder" &
