# SPDX-License-Identifier: GPL-2.0-only
# A console for tests, as getty and login are one: arguments SHELL PASSWORD. An empty password is not asked for.
trap : INT
echo "Debian GNU/Linux test ttyS0"
while :; do
	printf '\ntest login: '
	read -r user || exit 0
	[ "$user" ] || continue
	if [ "$2" ]; then
		printf 'Password: '
		read -r password || exit 0
		if [ "$password" != "$2" ]; then
			printf '\nLogin incorrect\n'
			continue
		fi
	fi
	printf '\nLast login: Sat Nov 21 on ttyS0\n'
	PS1=$(printf '\033[1mtest:~# \033[0m') $1
done
