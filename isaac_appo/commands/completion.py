"""``isaac-appo completion bash|zsh``: a script that completes commands, groups with their choices, and keys.

Every word is in the script, so that a Tab starts no Python. Print it again after an update.
"""

from __future__ import annotations

import argparse
from dataclasses import is_dataclass
from typing import Any, Dict, List, Sequence, Tuple

from isaac_appo.commands.main import COMMANDS
from isaac_appo.config.choices import GROUPS, choices
from isaac_appo.config.option import rules_of, walk
from isaac_appo.config.schema import RunConfig

# Commands that take no KEY=VALUE, and their words; where there are none, files are completed.
_OTHER: Dict[str, Tuple[str, ...]] = {
    "plot": (),
    "doctor": ("--json", "--matrix", "--run-root"),
    "list": ("tasks", "engines", "schedules", "advantages", "losses"),
    "completion": ("bash", "zsh"),
}
_OPTIONS = ("--help", "--cfg", "--resolve", "--origin", "--config-dir", "-m")

# Prints what may follow, for both shells. Arguments: the word's place in the line, the command, the word so far.
_WORDS = """\
_isaac_appo_words() {
    if [[ "$1" -le 1 ]]; then echo "@COMMANDS@"; return; fi
    [[ "$3" != -*=* ]] || return
    case "$2" in
        @KEYED@) ;;
@OTHER@
        *) return ;;
    esac
    case "$3" in
@VALUES@
        *=*) ;;
        *) echo "@KEYS@" ;;
    esac
}
"""
_BASH = """\
# isaac-appo completion for bash: eval "$(isaac-appo completion bash)", or put this file into
# ~/.local/share/bash-completion/completions/isaac-appo
@WORDS@
_isaac_appo() {
    local line="${COMP_LINE:0:$COMP_POINT}" words=() current="" found
    read -r -a words <<< "$line"
    [[ "$line" == *[[:space:]] ]] || current="${words[${#words[@]}-1]}"
    found="$(_isaac_appo_words $(( ${#words[@]} - ( ${#current} > 0 ) )) "${words[1]}" "$current")"
    COMPREPLY=( $(compgen -W "$found" -- "${current#*=}") )
    [[ -n "$found" ]] || compopt -o default 2>/dev/null
    [[ "${COMPREPLY[*]}" == *= ]] && compopt -o nospace 2>/dev/null
    # Bash splits words at "=": only what follows it is replaced.
    [[ "$current" != *=* || "$COMP_WORDBREAKS" == *=* ]] || COMPREPLY=( "${COMPREPLY[@]/#/${current%%=*}=}" )
}
complete -F _isaac_appo isaac-appo
"""
_ZSH = """\
#compdef isaac-appo
# isaac-appo completion for zsh: eval "$(isaac-appo completion zsh)" after compinit, or put this file as
# _isaac-appo into a folder of $fpath
@WORDS@
_isaac_appo() {
    local current="${words[CURRENT]}"
    local found=( ${=$(_isaac_appo_words $(( CURRENT - 1 )) "${words[2]}" "$current")} )
    [[ "$current" != *=* ]] || compset -P '*='
    (( ${#found} )) || { _files; return; }
    compadd -S '' -- ${(M)found:#*=}
    compadd -- ${found:#*=}
}
if [[ "${funcstack[1]}" == "_isaac_appo" || "${funcstack[1]}" == "_isaac-appo" ]]; then
    _isaac_appo "$@"
else
    compdef _isaac_appo isaac-appo
fi
"""
_SHELLS = {"bash": _BASH, "zsh": _ZSH}


def main(argv: List[str]) -> int:
    """Print the script for a shell."""
    parser = argparse.ArgumentParser(
        prog="isaac-appo completion",
        description='Prints a completion script: eval "$(isaac-appo completion bash)" in ~/.bashrc, or zsh in ~/.zshrc',
    )
    parser.add_argument("shell", choices=sorted(_SHELLS))
    print(script(parser.parse_args(argv).shell), end="")
    return 0


def script(shell: str) -> str:
    """The completion script for `bash` or `zsh`."""
    chosen = {f"{group}.name" for group in GROUPS}  # what the group itself sets
    keys: Dict[str, Sequence[str]] = {}  # with an effect; free-form ones end where the schema does
    for key, item, hint in walk(RunConfig, skip=("inert", "refused", "silent")):
        if key not in chosen and not is_dataclass(hint):
            keys[key] = rules_of(item).get("choices", ("True", "False") if hint is bool else ())
    valued = {**{group: list(choices(group)) for group in GROUPS}, **{k: v for k, v in keys.items() if v}}
    parts = {
        "WORDS": _WORDS,
        "COMMANDS": " ".join(COMMANDS),
        "KEYED": "|".join(name for name in COMMANDS if name not in _OTHER),
        "KEYS": " ".join([*(f"{key}=" for key in [*GROUPS, *keys]), *_OPTIONS]),
        "OTHER": _cases({name: words for name, words in _OTHER.items() if words}, "; return"),
        "VALUES": _cases({f"{key}=*": values for key, values in valued.items()}),
    }
    text = _SHELLS[shell]
    for name, value in parts.items():
        text = text.replace(f"@{name}@", value)
    return text


def _cases(table: Any, tail: str = "") -> str:
    return "\n".join(f'        {pattern}) echo "{" ".join(words)}"{tail} ;;' for pattern, words in table.items())
