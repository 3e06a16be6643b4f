# SPDX-License-Identifier: GPL-2.0-only
"""Are the two commands taken from the README as they stand there?"""

from __future__ import annotations

import pytest
from fresh_machine import CHECKOUT
from readme import promised_table, two_commands

_README = """\
# A lab

```sh
./not-this
```

## Two commands

On a machine:

```sh
./lab run 'a b.yaml'    # prints the table
./lab test
```

It prints

```text
a table
```

## More
"""


def test_a_newcomer_finds_two_commands() -> None:
    commands = two_commands((CHECKOUT / "README.md").read_text())
    assert commands.first.startswith("./lab run ")
    assert commands.second.startswith("./lab test")


def test_they_are_the_first_block_of_the_section() -> None:
    commands = two_commands(_README)
    assert (commands.first, commands.second) == ("./lab run 'a b.yaml'    # prints the table", "./lab test")


@pytest.mark.parametrize(
    "text",
    [
        "",
        _README.replace("## Two commands", "## Commands"),
        _README.replace("./lab test\n", ""),
        _README.replace("./lab test\n", "./lab test\n./lab doctor\n"),
    ],
)
def test_a_readme_with_more_or_fewer_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match='section "## Two commands"'):
        two_commands(text)


def test_the_table_of_this_readme_is_one_that_the_first_command_can_print() -> None:
    table = promised_table((CHECKOUT / "README.md").read_text())
    assert table.kernel.startswith("linux-6.1.0-")
    assert table.samples() == [("422", "1048", "1872", "470")] * 4


def test_a_readme_without_a_table() -> None:
    with pytest.raises(ValueError, match="no table"):
        promised_table("## Two commands\n\n```sh\none\ntwo\n```\n")
