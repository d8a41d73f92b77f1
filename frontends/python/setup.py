"""Puts the runtime and its plugins into the wheel; a wheel without them could only fail on import."""

import shutil
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py
from setuptools.errors import SetupError

HERE = Path(__file__).resolve().parent


def runtime_folder() -> Path:
    """The folder with libpenstock and, below penstock/plugins, the plugins."""
    places = [HERE / "penstock/lib"]
    checkout = HERE.parents[1]
    if (checkout / "CMakePresets.json").is_file():
        places.append(checkout / "build/release/lib")
    for place in places:
        if (place / "libpenstock.so.0").is_file() and any(place.glob("penstock/plugins/*.so")):
            return place
    raise SetupError(
        "penstock: a wheel needs the runtime, and no libpenstock.so.0 with plugins is in "
        + " or ".join(map(str, places))
        + "; build it first (tools/setup, or cmake --preset release && cmake --build --preset "
        "release). To use a checkout no wheel is needed: tools/setup puts the package into .venv"
    )


class BuildWithRuntime(build_py):
    def run(self) -> None:
        super().run()
        if self.editable_mode:  # the package then finds the checkout's build by itself
            return
        source = runtime_folder()
        target = Path(self.build_lib) / "penstock/lib"
        shutil.rmtree(target, ignore_errors=True)
        plugins = target / "penstock/plugins"
        plugins.mkdir(parents=True)
        shutil.copy2((source / "libpenstock.so.0").resolve(), target / "libpenstock.so.0")
        for plugin in sorted(source.glob("penstock/plugins/*.so")):
            shutil.copy2(plugin, plugins)


class Binary(Distribution):
    """Its files lie where those of one platform do."""

    def has_ext_modules(self) -> bool:
        return True


def commands():
    """build_py, and bdist_wheel where this setuptools has it; pyproject.toml asks for one that has."""
    try:
        from setuptools.command.bdist_wheel import bdist_wheel
    except ImportError:
        return {"build_py": BuildWithRuntime}

    class WheelOfThisMachine(bdist_wheel):
        """Any Python 3, but only this platform."""

        def get_tag(self):
            return "py3", "none", super().get_tag()[2]

    return {"build_py": BuildWithRuntime, "bdist_wheel": WheelOfThisMachine}


setup(cmdclass=commands(), distclass=Binary)
