"""The rule author's workbench: what rules do to programs, and which of them are needed.

`profile` counts what each rule does; `why` tells where a rule came closest to a match, and what it
lacked; `redundant` finds rules that the others make up for. `commands` puts them on the command
line. The functions are in the modules of those names.
"""
