"""``isaac-appo completion bash|zsh``: a script that completes commands, groups with their choices, and keys.

Every word is in the script, so that a Tab starts no Python. Print it again after an update.
"""

from __future__ import annotations

import argparse
from dataclasses import fields, is_dataclass
from typing import Any, Dict, Iterator, List, Tuple, get_type_hints

from isaac_appo.commands.main import COMMANDS
from isaac_appo.config.choices import GROUPS, choices
from isaac_appo.config.option import rules_of
from isaac_appo.config.schema import RunConfig

# Commands that take no KEY=VALUE, and their words; where there are none, files are completed.
_OTHER: Dict[str, Tuple[str, ...]] = {
    "plot": (),
    "doctor": ("--json", "--matrix", "--run-root"),
    "list": ("tasks", "engines", "schedules", "advantages", "losses"),
    "completion": ("bash", "zsh"),
}
_OPTIONS = ("--help", "--cfg", "--resolve", "--origin", "--config-dir", "-m")

_BASH = """\
# isaac-appo completion for bash: eval "$(isaac-appo completion bash)", or put this file into
# ~/.local/share/bash-completion/completions/isaac-appo
_isaac_appo() {
    local line="${COMP_LINE:0:$COMP_POINT}" words=() key
    read -r -a words <<< "$line"
    local current=""
    [[ "$line" == *[[:space:]] ]] || current="${words[${#words[@]}-1]}"
    local place=$(( ${#words[@]} - ( ${#current} > 0 ) ))
    COMPREPLY=()
    if (( place <= 1 )); then
        COMPREPLY=( $(compgen -W "@COMMANDS@" -- "$current") )
        return
    fi
    case "${words[1]}" in
        @KEYED@) ;;
@OTHER@
        *) compopt -o default 2>/dev/null; return ;;
    esac
    if [[ "$current" != *=* ]]; then
        COMPREPLY=( $(compgen -W "@KEYS@" -- "$current") )
        [[ "${COMPREPLY[*]}" == *= ]] && compopt -o nospace 2>/dev/null
        return
    fi
    key="${current%%=*}"
    case "$key" in
@VALUES@
        *) compopt -o default 2>/dev/null ;;
    esac
    # Bash splits words at "=": only what follows it is replaced.
    [[ "$COMP_WORDBREAKS" == *=* ]] || COMPREPLY=( "${COMPREPLY[@]/#/$key=}" )
}
complete -F _isaac_appo isaac-appo
"""
_ZSH = """\
#compdef isaac-appo
# isaac-appo completion for zsh: eval "$(isaac-appo completion zsh)" after compinit, or put this file as
# _isaac-appo into a folder of $fpath
_isaac_appo() {
    local current="${words[CURRENT]}" key
    if (( CURRENT == 2 )); then
        compadd -- @COMMANDS@
        return
    fi
    case "${words[2]}" in
        @KEYED@) ;;
@OTHER@
        *) _files; return ;;
    esac
    if [[ "$current" != *=* ]]; then
        compadd -S '' -- @KEYS_PLAIN@
        compadd -- @OPTIONS@
        return
    fi
    key="${current%%=*}"
    compset -P '*='
    case "$key" in
@VALUES@
        *) _files ;;
    esac
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
    keys = {key: values for key, values in _keys(RunConfig) if key not in chosen}
    valued = {**{group: list(choices(group)) for group in GROUPS}, **{k: v for k, v in keys.items() if v}}
    words = [f"{key}=" for key in [*GROUPS, *keys]]
    reply = 'COMPREPLY=( $(compgen -W "{}" -- "{}") )' if shell == "bash" else "compadd -- {}"
    parts = {
        "COMMANDS": " ".join(COMMANDS),
        "KEYED": "|".join(name for name in COMMANDS if name not in _OTHER),
        "KEYS": " ".join([*words, *_OPTIONS]),
        "KEYS_PLAIN": " ".join(words),
        "OPTIONS": " ".join(_OPTIONS),
        "OTHER": _cases({name: words for name, words in _OTHER.items() if words}, reply, "$current", "; return"),
        "VALUES": _cases(valued, reply, "${current#*=}"),
    }
    text = _SHELLS[shell]
    for name, value in parts.items():
        text = text.replace(f"@{name}@", value)
    return text


def _cases(table: Any, reply: str, prefix: str, tail: str = "") -> str:
    return "\n".join(f"        {key}) {reply.format(' '.join(words), prefix)}{tail} ;;" for key, words in table.items())


def _keys(section: Any, prefix: str = "") -> Iterator[Tuple[str, List[str]]]:
    """Every dotted key that has an effect, with its choices; free-form ones end where the schema does."""
    hints = get_type_hints(section)
    for item in fields(section):
        rules, hint, path = rules_of(item), hints[item.name], prefix + item.name
        if {"inert", "refused", "silent"} & set(rules):
            continue
        if is_dataclass(hint):
            yield from _keys(hint, path + ".")
        else:
            yield path, [*rules.get("choices", ())] or (["True", "False"] if hint is bool else [])
