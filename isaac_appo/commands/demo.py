"""``isaac-appo demo``: the Ant that comes with the package walks, on any CPU, offline."""

from __future__ import annotations

from typing import List

from isaac_appo.commands import play

_FILM = ["video=true", "output=ant.gif", "length=300"]
_HELP = """usage: isaac-appo demo [KEY=VALUE ...]

  isaac-appo demo                     evaluate the Ant that comes with the package and film it into ant.gif
  isaac-appo demo viewer=true         watch it in the browser
  isaac-appo demo output=ant.mp4 num_envs=64

Takes the keys of isaac-appo play."""


def main(argv: List[str]) -> int:
    """Play the shipped checkpoint; exit codes are those of `isaac-appo play`."""
    if {"-h", "--help"} & set(argv):
        print(_HELP)
        return 0
    from isaac_appo.play.camera import check_camera
    from isaac_appo.play.video import VideoError
    from isaac_appo.tasks.base import asset

    film = _FILM
    try:
        check_camera()
    except VideoError as error:
        print(f"No film: {error}")
        film = []
    return play.main(["task=Ant", "num_envs=16", *film, f"checkpoint={asset('demo/Ant.pth')}", *argv])
