# SPDX-License-Identifier: GPL-2.0-only
#
# Splits a text into words as a POSIX shell does, and executes nothing: quotes, backslashes, comments. Nothing is
# expanded, operators are ordinary characters, and the end of a line ends a word, no command. Prints each word in single
# quotes, for the eval of a shell; the exit status is 1 for a quote without its other. With LC_ALL=C it goes by bytes.
#
# POSIX.1-2017, Shell Command Language, 2.2 (quoting) and 2.3 (token recognition).

{
    sub(/\r$/, "") # files of Windows
    text = text $0 "\n"
}

# No gsub(): awks differ in what they make of a backslash in its replacement.
function add(character) {
    word = word (character == single ? single "\\" single single : character)
    begun = 1
}

function end_word() {
    if (begun) printf " %s%s%s", single, word, single
    word = ""
    begun = 0
}

END {
    single = sprintf("%c", 39)
    length_of_text = length(text)
    for (at = 1; at <= length_of_text; at++) {
        character = substr(text, at, 1)
        if (quote == single) {
            if (character == single) quote = ""
            else add(character)
        } else if (character == "\\") {
            escaped = substr(text, ++at, 1)
            if (escaped == "\n") continue
            if (quote != "" && index("$`\"\\", escaped) == 0) add("\\")
            add(escaped)
        } else if (quote != "") {
            if (character == quote) quote = ""
            else add(character)
        } else if (character == single || character == "\"") {
            quote = character
            add("")
        } else if (character == " " || character == "\t" || character == "\n") {
            end_word()
        } else if (character == "#" && !begun) {
            while (substr(text, at + 1, 1) != "\n") at++
        } else {
            add(character)
        }
    }
    end_word()
    exit quote != ""
}
