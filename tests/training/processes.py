"""Run a function of a test module in several processes that torchrun might have started."""

import os
import subprocess
import sys

_PORTS = iter(range(20_000 + os.getpid() % 200 * 50, 40_000))


def start(size, script, *arguments, module=False):
    """The processes, each with its number in RANK; standard error is kept."""
    shared = {"OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(next(_PORTS))}
    own = [{"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)} for rank in range(size)]
    command = [sys.executable, "-W", "ignore", *(("-m",) if module else ()), str(script), *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return [subprocess.Popen(command, env={**os.environ, **shared, **env}, **pipes) for env in own]


def finish(processes, timeout=500):
    """(exit code, standard output, standard error) of each."""
    try:
        said = [process.communicate(timeout=timeout) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(process.returncode, *texts) for process, texts in zip(processes, said, strict=True)]
