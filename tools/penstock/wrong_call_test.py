"""A wrong call of the `penstock` command is told what is wrong with it, on one screen, with a status of its own."""

import pytest

from command_test import penstock


@pytest.mark.parametrize(("arguments", "said"), [
    (("plugin", "list"), 'no command "plugin"; did you mean "plugins"?'),
    (("foo",), 'no command "foo"; known are: run, plugins, config, check, new, plan, doctor'),
    (("plugins", "lst", "--json"), 'no command "plugins lst"; did you mean "list"?'),
    (("config", "chek", "run.toml"), 'no command "config chek"; did you mean "check"?'),
])
def test_an_unknown_command_is_named_with_the_nearest(arguments, said):
    ran = penstock(*arguments)
    assert ran.returncode == 2 and not ran.stdout
    assert ran.stderr == f"penstock: there is {said}\n"


def test_options_before_a_command_are_no_command():
    assert penstock("--help").returncode == 0
    ran = penstock("--jsn")
    assert ran.returncode == 2 and "there is no command" not in ran.stderr


@pytest.mark.parametrize("arguments", [
    ("plugins", "list"), ("plugins", "matrix"), ("plugins", "describe", "topk"), ("config", "check", "run.toml")], ids=" ".join)
def test_a_folder_of_plugins_that_is_not_there_is_named(arguments):
    ran = penstock(*arguments, "--plugin-path", "/nonexistent/plugins")
    assert ran.returncode == 2
    assert "--plugin-path" in ran.stderr and "/nonexistent/plugins" in ran.stderr
