# Everything sets itself up: Python packages, the embedded model, the dashboard, the log. Needs Python 3.11 and make.
#
#   make serve                                    the embedded model on http://127.0.0.1:8000
#   make serve MODEL=Qwen/Qwen3-0.6B PORT=9000 ARGS="--max-model-len 8192"
#   make test ARGS="tests/app -k policy"

PYTHON ?= python3.11
MODEL ?=
PORT ?=
ARGS ?=
PORT_FLAG = $(if $(PORT),--port $(PORT))
NEEDS_PYTHON = command -v $(PYTHON) >/dev/null 2>&1 || { \
	echo "vllm-restore needs Python 3.11 and there is no $(PYTHON) here. On Debian: apt install python3.11 python3.11-venv;" \
	"elsewhere: python.org, pyenv or uv. Or name one: make PYTHON=/path/to/python3.11" >&2; exit 2; }
SET_UP = $(NEEDS_PYTHON); exec $(PYTHON) -m app.bootstrap

.DEFAULT_GOAL := help
.PHONY: help serve test lint web lock clean

help:  ## this list
	@sed -n 's/^\([a-z]*\):  ## \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST))

serve:  ## vLLM with the re-store connector and its dashboard [MODEL=… PORT=… ARGS="…"]
	@$(SET_UP) serve $(MODEL) $(PORT_FLAG) $(ARGS)

test:  ## every test, real vLLM and real browser included [ARGS="…" for pytest]
	@$(SET_UP) test $(ARGS)

lint:  ## style, types, import rules, and the dashboard's own checks
	@$(SET_UP) lint

web:  ## the dashboard's build
	@$(SET_UP) web

lock:  ## pin every package anew [ARGS="--upgrade"]
	@$(SET_UP) lock $(ARGS)

clean:  ## remove what set-up made in this checkout
	rm -rf .venv .bootstrap.lock app/static web/node_modules .pytest_cache .ruff_cache .import_linter_cache artifacts
