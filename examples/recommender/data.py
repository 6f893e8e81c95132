"""A generated click log with a known structure, so that one can see what a model has learned.

A shop shows items to users, hour by hour. Whether an impression is clicked depends on
  * taste:  items have a topic, users like one to three topics; the items that a user clicked before and the tags in the
            profile both hint at them;
  * zeal:   eager users click more, and their history holds more of the shop's bargains;
  * time:   every item has its own good and bad hours, and is offered in some hours only;
  * novelty: new users, who have no history at all, hesitate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from raggrad import Ragged, ops

HOURS = 24
DAYPART_HOURS = 6
DAYPARTS = HOURS // DAYPART_HOURS


@dataclass(frozen=True)
class Sizes:
    items: int = 600
    users: int = 3000
    topics: int = 8
    tags_per_topic: int = 5
    impressions: int = 1_000_000
    heldout: int = 20_000

    @property
    def tags(self) -> int:
        return self.topics * self.tags_per_topic


@dataclass(frozen=True)
class Batch:
    """Impressions of one part of the day."""

    daypart: int
    item: np.ndarray
    hour: np.ndarray
    history: Ragged  # the items that each user clicked before
    tags: Ragged
    tags_shown: np.ndarray
    clicked: np.ndarray
    true_probability: np.ndarray

    def __len__(self) -> int:
        return len(self.item)


@dataclass(frozen=True)
class Impressions:
    """Impressions, ordered by hour, so that a part of the day is a range."""

    user: np.ndarray
    item: np.ndarray
    hour: np.ndarray
    clicked: np.ndarray
    true_probability: np.ndarray

    def daypart_range(self, daypart: int) -> tuple[int, int]:
        hours = np.array([daypart, daypart + 1]) * DAYPART_HOURS
        begin, end = np.searchsorted(self.hour, hours)
        return int(begin), int(end)


@dataclass(frozen=True)
class ClickLog:
    sizes: Sizes
    slots: np.ndarray  # (item, hour) pairs on offer, in row-major order
    history: list[Ragged]  # of each user
    tags: list[Ragged]
    train: Impressions
    heldout: Impressions

    def sample(self, rng: np.random.Generator, size: int, tag_dropout: float = 0.2) -> Batch:
        """A random training batch. Some profiles are hidden, so that the model does not rely on tags alone."""
        daypart = int(rng.integers(DAYPARTS))
        rows = rng.integers(*self.train.daypart_range(daypart), size=size)
        return self._batch(self.train, daypart, rows, rng.random(size) >= tag_dropout)

    def heldout_batches(self) -> list[Batch]:
        """All held-out impressions: one batch for each part of the day that has any."""
        ranges = [np.arange(*self.heldout.daypart_range(daypart)) for daypart in range(DAYPARTS)]
        return [
            self._batch(self.heldout, daypart, rows, np.ones(len(rows), bool))
            for daypart, rows in enumerate(ranges)
            if len(rows)
        ]

    def _batch(
        self, log: Impressions, daypart: int, rows: np.ndarray, tags_shown: np.ndarray
    ) -> Batch:
        users = log.user[rows]
        return Batch(
            daypart=daypart,
            item=log.item[rows],
            hour=log.hour[rows],
            history=ops.stack([self.history[user] for user in users]),
            tags=ops.stack([self.tags[user] for user in users]),
            tags_shown=tags_shown,
            clicked=log.clicked[rows],
            true_probability=log.true_probability[rows],
        )


def generate(sizes: Sizes, seed: int) -> ClickLog:
    rng = np.random.default_rng(seed)
    topic = rng.integers(sizes.topics, size=sizes.items)
    bargain = rng.random(sizes.items) < 0.15
    slots, slot_appeal = _schedule(rng, sizes.items)

    likes = _interests(rng, sizes)
    zeal = rng.normal(size=sizes.users)
    is_new = rng.random(sizes.users) < 0.15
    history = [
        np.zeros(0, np.int64) if new else _past_clicks(rng, liked, eager, topic, bargain)
        for liked, eager, new in zip(likes, zeal, is_new, strict=True)
    ]
    tags = [_profile(rng, liked, sizes) for liked in likes]

    def show(count: int) -> Impressions:
        user, slot = rng.integers(sizes.users, size=count), rng.integers(len(slots), size=count)
        slot = slot[np.argsort(slots[slot, 1])]
        item, hour = slots[slot].T.copy()
        logit = -2.4 + 3.0 * likes[user, topic[item]] + slot_appeal[slot]
        logit += np.where(is_new[user], -1.0, 0.7 * zeal[user])
        probability = 1 / (1 + np.exp(-logit))
        return Impressions(user, item, hour, rng.random(count) < probability, probability)

    return ClickLog(
        sizes=sizes,
        slots=slots,
        history=[Ragged([], ids) for ids in history],
        tags=[Ragged([], ids) for ids in tags],
        train=show(sizes.impressions),
        heldout=show(sizes.heldout),
    )


def _schedule(rng: np.random.Generator, items: int) -> tuple[np.ndarray, np.ndarray]:
    """Each item is on offer for several hours in a row, which may pass midnight, and has its own peak."""
    hours_since_opening = (np.arange(HOURS) - rng.integers(HOURS, size=(items, 1))) % HOURS
    offered = hours_since_opening < rng.integers(4, 13, size=(items, 1))
    peak = rng.integers(HOURS, size=(items, 1))
    appeal = 0.7 * rng.normal(size=(items, 1)) + np.cos((np.arange(HOURS) - peak) * np.pi / 12)
    return np.ascontiguousarray(np.argwhere(offered)), appeal[offered]


def _interests(rng: np.random.Generator, sizes: Sizes) -> np.ndarray:
    """A users x topics table of likes, one to three per user."""
    ranks = np.argsort(np.argsort(rng.random((sizes.users, sizes.topics)), axis=1), axis=1)
    return ranks < rng.integers(1, 4, size=(sizes.users, 1))


def _past_clicks(
    rng: np.random.Generator,
    liked: np.ndarray,
    eager: float,
    topic: np.ndarray,
    bargain: np.ndarray,
) -> np.ndarray:
    attraction = np.where(liked[topic], 1.0, 0.06) * np.where(bargain, np.exp(eager), 1.0)
    length = 1 + rng.geometric(0.08)
    return rng.choice(len(topic), size=min(length, 60), p=attraction / attraction.sum())


def _profile(rng: np.random.Generator, liked: np.ndarray, sizes: Sizes) -> np.ndarray:
    """Up to eight tags, most of them about a liked topic; some users state none."""
    count = min(rng.poisson(3), 8)
    topics = rng.choice(np.flatnonzero(liked), size=count)
    topics = np.where(rng.random(count) < 0.1, rng.integers(sizes.topics, size=count), topics)
    return topics * sizes.tags_per_topic + rng.integers(sizes.tags_per_topic, size=count)
