"""A process that tries inputs, one of which kills it and one of which holds it up."""

import os
import time


def dying(share, seed, only, now, answers):
    for index in range(*share):
        now[0], now[1] = index, time.monotonic()
        if index == 3:
            answers.close()
            answers.join_thread()  # which writes what was put
            os._exit(9)
        if index == 6:
            time.sleep(600)
        answers.put((index, "made up", True, 0.0, []))
    answers.put(None)
