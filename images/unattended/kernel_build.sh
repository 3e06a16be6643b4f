# SPDX-License-Identifier: GPL-2.0-only
# Has $targets of the smallest kernel built in each run, from the prepared tree, and tells how many objects that made,
# and a digest of them.
. /sealed/settings
. /sealed/steps.sh
. /sealed/system.sh
. /sealed/runs.sh
. /sealed/kernel_make.sh

# The names of what the targets come to, as far as it is there: no objects of programs for the host.
objects() {
	for target in $targets; do
		case $target in
		*/) [ ! -d "$target" ] || find "./$target" -name '*.o' ;;
		*.o) [ ! -e "$target" ] || echo "./$target" ;;
		*)
			find . \( -path ./scripts -o -path ./tools -o -path ./arch/x86/tools \) -prune -o -name '*.o' -print
			[ ! -e "$target" ] || echo "./$target"
			;;
		esac
	done
}

# Every run begins with the tree as it was prepared.
before() {
	cd / && rm -rf $build && mkdir $build && tar -C $build -xf /sealed/build.tar && cd $build ||
		give_up "cannot unpack the prepared build"
	[ "$(objects | wc -l)" = 0 ] || give_up "there are objects before the build"
}

timed() {
	kernel_make $targets
}

after() {
	magic=$(printf '\177ELF')
	for object in $(objects); do
		[ "$(head -c 4 "$object")" = "$magic" ] || give_up "$object is no object file"
	done
	echo "built objects=$(objects | wc -l) digest=$(objects | sort | xargs sha256sum | sha256sum | cut -d ' ' -f 1)"
}

enter_system
enter_source
set_date
runs
