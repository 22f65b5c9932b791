"""For servers of two ranks on two cores: whoever waits for shared memory sleeps a moment instead of yielding its core.

vLLM's ranks and its engine poll shared memory with `sched_yield` between looks. With more pollers than cores, Linux
(6.18) lets a process that only yields get so far ahead in its account that others wait for seconds. Python imports
this module by itself where the folder is on its path, before vLLM.
"""

import os
import time

os.sched_yield = lambda: time.sleep(0.0002)
