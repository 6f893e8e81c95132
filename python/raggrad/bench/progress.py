"""Progress of a run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(steps: int) -> Iterator[tuple[Callable[[str], object], Callable[[], object]]]:
    """Yields two functions: one takes the name of what is done now, the other counts a finished step.

    They move a bar if tqdm is installed and stderr is a terminal. Otherwise every name is printed on a line.
    """
    try:
        from tqdm import tqdm
    except ImportError:
        tqdm = None
    if tqdm is None or not sys.stderr.isatty():
        yield (lambda text: print(text, file=sys.stderr, flush=True)), (lambda: None)
        return
    layout = "{percentage:3.0f}% |{bar:30}| {elapsed} {desc}"
    with tqdm(total=steps, leave=False, bar_format=layout) as bar:
        yield bar.set_description_str, bar.update
