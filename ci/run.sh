#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# Runs the lab in CI, and writes the comment of a pull request. action.yml and ci/gitlab.yml call it.
#
#   ci/run.sh        runs ./lab with the words of $LAB_RUN; the exit status is the lab's
#   ci/run.sh key    prints the key of the lab's cache for the command, the kernels and the experiments that $LAB_RUN names
#
# LAB_RUN       cost opens.bpf.c --kernels 6.1,7.3    or: test tests/    or: compare --config my.yaml ...
#               Quotes, backslashes and comments are a shell's, over any number of lines; nothing is expanded, and no
#               shell executes it.
# LAB_NAME      tells the comments of a pull request apart; default: the job and the command
# LAB_REPORTS   the folder for comment.md, output.txt, status, and junit.xml of `test`; default: lab-reports

set -eu

folder=$(dirname "$(readlink -f "$0")")
lab=$folder/../lab
reports=${LAB_REPORTS:-lab-reports}

# Prints what decides what the arguments put into the cache, one a line: kernels, experiment files, bpftrace's image.
decisive() {
    previous=
    for word; do
        case $previous,$word in
            --kernels,*) printf '%s\n' "$word" | tr ',' '\n' ;;
            *,--kernels=*) printf '%s\n' "${word#--kernels=}" | tr ',' '\n' ;;
            *,*.yaml | *,*.yml) printf '%s\n' "$word" ;;
            *,bpftrace:* | *,*.bt) echo bpftrace ;;
            *,tool:*) echo tools ;;
        esac
        previous=$word
    done | LC_ALL=C sort -u
}

print_key() {
    command=${1:-}
    deciding=$(decisive "$@")
    # A path may have spaces, and characters of patterns.
    IFS='
'
    set -f
    # shellcheck disable=SC2086  # words
    set -- "$command" $deciding
    "$lab" cache-key "$@"
}

# The words of a command of the lab that prints a comment. Its progress goes to output.txt.
measure() {
    has_format=
    for word; do
        case $word in --format | --format=*) has_format=yes ;; esac
    done
    [ -n "$has_format" ] || set -- "$@" --format github
    { "$lab" "$@" 2>&1 >"$reports/comment.md" && echo 0 >"$reports/status" || echo $? >"$reports/status"; } |
        tee "$reports/output.txt" >&2
    cat "$reports/comment.md"
}

test_guests() {
    shift
    set -- --junitxml="$reports/junit.xml" --qemu-comment="$reports/comment.md" "$@"
    { "$lab" test "$@" 2>&1 && echo 0 >"$reports/status" || echo $? >"$reports/status"; } | tee "$reports/output.txt"
}

# Of a command that has written no comment: the end of the output, as a block that is indented, so no Markdown.
write_comment() {
    read -r status <"$reports/status"
    sign=❌
    [ "$status" != 0 ] || sign=✅
    printf '\n%s **./lab %s: exit status %s**\n\n' "$sign" "$1" "$status"
    tail -n 60 "$reports/output.txt" | tr -d '\000-\010\013-\037\177' | cut -c 1-500 | sed 's/^/    /'
}

# Whether the command has written a comment, and not nothing, or another --format.
is_comment() {
    grep -q '^<!-- probe-lab: ' "$reports/comment.md"
}

# GitHub's runner takes lines of the output that begin with `::` for commands, and a guest may print some.
stop_commands() {
    unset token # of the environment: neither is it printed, nor does the lab inherit the new one
    [ -n "${GITHUB_ACTIONS:-}" ] || return 0
    token=$(od -An -N 16 -t x1 /dev/urandom | tr -d ' \n')
    printf '::stop-commands::%s\n' "$token"
}

# A name as the mark has it; a sum tells names apart that differ in other characters.
marked() {
    plain=$(printf '%s' "$1" | LC_ALL=C tr -c 'A-Za-z0-9._@+-' '-')
    [ "$plain" = "$1" ] || plain=$plain-$(printf '%s' "$1" | cksum | cut -d ' ' -f 1)
    printf '%s\n' "$plain"
}

run() {
    stop_commands
    case $1 in
        test) test_guests "$@" ;;
        *) measure "$@" ;;
    esac
    [ -z "${token:-}" ] || printf '::%s::\n' "$token"
    name=${LAB_NAME:-${GITHUB_JOB:-${CI_JOB_NAME:-job}}-$1}
    mark="<!-- probe-lab: $(marked "$name") -->"
    # The comment of a command begins with a mark of its own.
    { printf '%s\n' "$mark" && if is_comment; then tail -n +2 "$reports/comment.md"; else
        write_comment "$1"; fi; } >"$reports/comment.new"
    mv "$reports/comment.new" "$reports/comment.md"
    [ -z "${GITHUB_STEP_SUMMARY:-}" ] || cat "$reports/comment.md" >>"$GITHUB_STEP_SUMMARY"
}

wrong() {
    printf 'ci/run.sh: LAB_RUN %s, such as: cost opens.bpf.c --kernels 6.1,7.3\n' "$1" >&2
    exit 2
}

# Prints the words of LAB_RUN, each in quotes.
quoted_words() {
    printf '%s\n' "${LAB_RUN:-}" | LC_ALL=C awk -f "$folder/words.awk" || wrong 'has a quote without its other'
}

mode=${1:-run}
words=$(quoted_words)
eval "set -- $words"
case $mode in
    key) print_key "$@" ;;
    run)
        [ $# != 0 ] || wrong 'has no arguments for ./lab'
        mkdir -p -- "$reports"
        for file in comment.md comment.new output.txt status junit.xml; do rm -f -- "$reports/$file"; done
        LAB_REPORTS=$(CDPATH='' cd -- "$reports" && pwd)
        export LAB_REPORTS
        reports=$LAB_REPORTS # `./lab test` has another folder
        run "$@" </dev/null
        read -r status <"$reports/status"
        exit "$status"
        ;;
esac
