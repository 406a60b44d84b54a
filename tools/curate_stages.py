"""The rule that gives tasks to the workers of a curation: of tools/ray_curate.py, and of
bench/curate_balance.py, which simulates the rule. It only counts; times and processes are the
caller's.

    source ──> queue 0 ── stage 0 ──> queue 1 ── stage 1 ──> ...

A free worker gets a task of the deepest stage that has a full batch and whose consumer has capacity; if
none has a full batch, of the deepest stage that has an item. No worker belongs to a stage, and no speed
is measured. A queue has at most its capacity and the outputs of one task per worker.
"""
import collections


class Stage:
    """A stage. `batch`: items of a full task; `limit`: most tasks at the same time, None: no limit."""

    def __init__(self, name, batch=1, limit=None):
        self.name, self.batch, self.limit = name, batch, limit


# Models stay loaded in workers, so a task of `score` has one video. A server limits its requests.
def first_stages():
    return [Stage("analyse"), Stage("score")]


def second_stages(captions):
    return [Stage("write"), Stage("caption", batch=4, limit=captions)]


class Stages:
    """Queues of items and counts of tasks in work. `rounds`: full tasks per worker that fill a queue."""

    def __init__(self, stages, workers, rounds=2):
        self.stages, self.workers = stages, workers
        self.queue = [collections.deque() for _ in stages]
        self.alone = [collections.deque() for _ in stages]  # items that a task failed with
        self.capacity = [rounds * workers * stage.batch for stage in stages]
        self.tasks = [0] * len(stages)  # in work
        self.items = [0] * len(stages)  # in work

    def add(self, items):
        self.queue[0].extend(items)

    def next(self):
        """Takes a task for a free worker: (number of the stage, items); None: nothing to do now."""
        for least in (self._batch, lambda k: 1):
            for k in reversed(range(len(self.stages))):
                if len(self.queue[k]) >= least(k) and self.may_start(k):
                    return self.take(k)
        for k in reversed(range(len(self.stages))):
            if self.alone[k] and not self._is_limited(k):
                return self._start(k, [self.alone[k].popleft()])
        return None

    def waiting(self):
        """Whether items wait in any queue."""
        return any(self.queue) or any(self.alone)

    def take(self, k):
        """Starts a task of a stage with the items that wait, at most a batch."""
        count = min(self._batch(k), len(self.queue[k]))
        return self._start(k, [self.queue[k].popleft() for _ in range(count)])

    def done(self, stage, items, outputs):
        """Ends a task. The outputs are items of the next stage; the last stage has none."""
        self._end(stage, items)
        if outputs:
            self.queue[stage + 1].extend(outputs)

    def failed(self, stage, items, again):
        """Ends a task that failed. The items `again` run once more, each in a task of its own, after
        all others: one of them may be the cause."""
        self._end(stage, items)
        self.alone[stage].extend(again)

    def _batch(self, k):
        """Items of a full batch: less at the end, when the workers share the rest."""
        rest = sum(len(queue) for queue in self.queue[:k + 1])
        return min(self.stages[k].batch, max(1, -(-rest // self.workers)))

    def _start(self, k, items):
        self.tasks[k] += 1
        self.items[k] += len(items)
        return k, items

    def _end(self, k, items):
        self.tasks[k] -= 1
        self.items[k] -= len(items)

    def _is_limited(self, k):
        return self.stages[k].limit is not None and self.tasks[k] >= self.stages[k].limit

    def may_start(self, k):
        """Whether the limit of the stage and the capacity of its consumer permit a task."""
        if self._is_limited(k):
            return False
        return k + 1 == len(self.stages) or len(self.queue[k + 1]) < self.capacity[k + 1]
