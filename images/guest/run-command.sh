# SPDX-License-Identifier: GPL-2.0-only
# Runs one command for a channel that has no frames: arguments TOKEN DIRECTORY PROGRAM ARGUMENT...
# A line with the token and our process number goes before what is printed on either stream, one with the token and the
# status behind it. What comes before or after is somebody else's: a login script's, or of a process left behind.
token=$1 directory=$2
shift 2
PATH=$PATH:/run/orchestrator/bin TERM=dumb
export PATH TERM
unset CDPATH
exec 3>&2
# What the command sends to its whole group is not to end us as well: somebody has to tell the status.
trap : HUP INT QUIT PIPE ALRM TERM USR1 USR2
printf '%s %s\n' "$token" $$
printf '%s %s\n' "$token" $$ >&3
# A shell has something to say about commands that died of a signal.
exec 2>/dev/null
(
	exec 2>&3 3>&- </dev/null
	cd "$directory" || exit 127
	exec "$@"
)
status=$?
printf '%s %s\n' "$token" "$status"
printf '%s %s\n' "$token" "$status" >&3
exit 0
