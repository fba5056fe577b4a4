# Every target installs what it needs, and no more, the first time and whenever its versions change:
#
#   make install    the library and its command line in .venv
#   make demo       a first look: `specsample demo`
#   make test       the test suite
#   make check      formatting, lint, types, layers, dependencies, then the test suite
#   make check-full the same with every extra, so that no test is skipped for want of a package
#   make bench      `specsample bench`; installs the peers it compares with (PyTorch)
#   make lock       writes requirements/*.lock anew from the versions in .venv
#   make clean      removes .venv and what builds and tools left behind

PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2
ARGS ?=

BIN := $(VENV)/bin
STAMPS := $(VENV)/.stamps
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL := $(PIP) install --quiet

PYTEST := $(BIN)/python -m pytest
ifneq ($(WORKERS),0)
PYTEST += -n $(WORKERS) --dist loadfile
endif
ifdef FAST
PYTEST += -m "not slow and not exhaustive"
endif
ifdef FULL
PYTEST += -m ""
endif

# Plans compile for TPUs with libtpu, which exists for one platform.
TPU := $(if $(filter Linux-x86_64,$(shell uname -sm | tr ' ' '-')),$(STAMPS)/tpu)

.PHONY: install demo test check check-full bench lock clean
.DEFAULT_GOAL := install
.NOTPARALLEL:
.DELETE_ON_ERROR:

install: $(STAMPS)/core

demo: $(STAMPS)/core
	$(BIN)/specsample demo $(ARGS)

test: $(STAMPS)/test $(TPU)
	$(PYTEST) $(ARGS)

check: $(STAMPS)/test $(STAMPS)/dev $(TPU)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(PIP) check
	$(BIN)/python -m pytest -q tests/conformance/test_layers.py
	$(PYTEST) $(ARGS)

check-full: $(STAMPS)/data $(STAMPS)/bench
	$(MAKE) check FULL=1

bench: $(STAMPS)/bench
	$(BIN)/specsample bench $(ARGS)

# What .venv holds already stays as it is if `setup.py` permits it; what is missing is added.
lock: | $(STAMPS)
	$(INSTALL) --editable '.[test,dev,data,bench,index,tpu]'
	$(BIN)/python scripts/lock.py core test dev data bench index tpu

clean:
	rm -rf $(VENV) build dist *.egg-info .cache .pytest_cache .ruff_cache .hypothesis

# The library's own code is linked, not copied, so only its requirements can be out of date.
$(STAMPS)/core: requirements/core.lock setup.py | $(STAMPS)
	$(INSTALL) -r $<
	$(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

$(STAMPS)/%: requirements/%.lock $(STAMPS)/core
	$(INSTALL) -r $<
	@touch $@

$(STAMPS):
	@$(PYTHON) -c 'import sys; v = sys.version.split()[0]; sys.exit(sys.version_info < (3, 11) and \
	  f"specsample needs Python 3.11 or newer; $(PYTHON) is {v}. Try: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	@mkdir -p $@
