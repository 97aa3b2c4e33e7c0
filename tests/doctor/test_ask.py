from __future__ import annotations

from isaac_appo.doctor.ask import ask_all


def test_answers_crashes_and_errors_come_back_as_facts_and_sentences() -> None:
    answers = ask_all(
        {
            "fine": "print('noise'); answer = {'x': 3}",
            "crash": "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
            "nosuchpackage": "import nosuchpackage",
            "other": "import nosuchpackage",
        }
    )
    assert answers["fine"] == ({"x": 3}, "", False)
    assert answers["crash"] == ({}, "the process that tried it ended by SIGSEGV", False)
    assert answers["nosuchpackage"] == ({}, "ModuleNotFoundError: No module named 'nosuchpackage'", True)
    assert answers["other"].fault and not answers["other"].absent


def test_a_probe_that_hangs_is_given_up() -> None:
    assert ask_all({"slow": "import time; time.sleep(600)"}, timeout_s=0.5)["slow"].fault == "no answer within 0.5 s"
