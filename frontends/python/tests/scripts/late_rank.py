"""Rank 1 calls hvd.init() so late that rank 0 has given up."""

import os
import sys
import time

import penstock.torch as hvd

if os.environ["RANK"] == "1":
    time.sleep(float(sys.argv[1]))
hvd.init(config_text="[runtime]\nmeeting_timeout_s = 4.0\nstall_warning_s = 0.3\n")
