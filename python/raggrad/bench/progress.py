"""How far a run is, for whoever waits."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(steps: int) -> Iterator[tuple[Callable[[str], object], Callable[[], object]]]:
    """Gives (say what is being done, one step is done): a bar if tqdm is there, and somebody watches, otherwise a line
    per thing said."""
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
