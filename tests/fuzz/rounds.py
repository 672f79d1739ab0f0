"""What the fuzzers share: rounds over seeds, and how a program that fails becomes smaller."""


def run(first, count, one, found, backend=None):
    """Calls `one` with `count` seeds. It returns the text of a failure, or None, and a number to add up; `found` says
    in the report what that number counts. Returns the failures and the sum."""
    failures, total = [], 0
    for seed in range(first, first + count):
        why, number = one(seed)
        total += number
        if why:
            failures.append(f"seed {seed}{f', backend {backend}' if backend else ''}: {why}")
            print(failures[-1], flush=True)
    print(f"{count} programs, {total} {found}, {len(failures)} failures{f', backend {backend}' if backend else ''}",
          flush=True)
    return failures, total


def shrink(edits, fails):
    """Makes a program smaller as long as it fails. `edits()` yields functions: each makes the program smaller, and
    returns what undoes that."""
    changed = True
    while changed:
        changed = False
        for edit in edits():
            undo = edit()
            if fails():
                changed = True
            else:
                undo()


def drops(items):
    """An edit for each item of a list, the last one first: it drops the item."""
    def drop(k):
        dropped = items.pop(k)
        return lambda: items.insert(k, dropped)
    for k in reversed(range(len(items))):
        yield lambda k=k: drop(k)
