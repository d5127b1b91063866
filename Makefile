# Targets for a fresh clone: `make help` lists them. POSIX sh, Python and a JDK are all they need.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
JAR := recovery/rekindle_spark/spark/jvm/rekindle-exchange.jar
# There while pip runs. Where it is there before, an installation was interrupted.
BEGUN := $(VENV)/begun
# Runs commands at the same time; each line of output begins with the name of its command.
STEPS = PYTHONPATH=recovery:e2e $(PYTHON) -m testbed.parallel_steps
TESTBED = PYTHONPATH=recovery:e2e $(PYTHON) -m testbed
# What clusters of real nodes and their images need of Debian, beside what `make setup` needs.
PACKAGES := buildah busybox-static containerd containernetworking-plugins iptables iproute2 \
  mmdebstrap openssl runc util-linux

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help setup ready clean-cache flink spark-releases check-tools check-python demo test test-lab mutants lint checks unit simulation integration kubernetes testbed images lock audit bench-operator packages cluster e2e e2e-clean wheel clean

help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | \
	  while IFS='|' read -r target text; do printf '%-22s %s\n' "$$target" "$$text"; done

# Both commands take half a second when there is nothing to do. The jar is current or not by a digest of its
# sources. With the archives JVMs start in half the time; without them everything works too.
setup: $(INSTALLED) ## install everything into .venv, build the jar, make class-data archives (once, some minutes)
	@$(STEPS) jar '$(BIN)/python -m rekindle_spark.spark.jvm_build >/dev/null' \
	  archives '$(BIN)/python -m rekindle_local.class_data_training'

# While pip downloads, Go compiles, and the other way round.
ready: check-tools ## what `make test` needs: setup, and the programs of tests on Kubernetes and S3 beside it
	@$(STEPS) setup 'unset PYTHONPATH; $(MAKE) --no-print-directory setup' \
	  programs '$(TESTBED) build all versitygw >/dev/null || { \
	    echo "SOME PROGRAMS ARE MISSING: tests that need them are skipped"; [ "$$CI" != true ]; }'

clean-cache: check-python ## remove programs and archives that all clones share, but for images
	@$(TESTBED) clean-cache

flink: setup ## install Flink's jars beside it, to measure it too (once, 330 MB)
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e 'benchmarks[flink]'

spark-releases: setup ## install other releases of Spark beside it, to test protected queries on them too (once, 2 GB)
	@PYTHONPATH=recovery:e2e $(BIN)/python -m testbed spark-releases || true  # the tests say what is missing

demo: setup ## lose 3 of 4 workers at once and watch the queries come back, two minutes
	$(BIN)/rekindle demo

test: TURN = --turn today
# `make test UNTIL=MOMENT` (seconds since 1970) leaves out long tests that would not end by then, and says so.
SO_FAR := .pytest_cache/so-far.json
DEADLINE = $(if $(UNTIL),--until $(UNTIL) --so-far $(SO_FAR))
test: ready checks unit integration kubernetes ## what protects users against a wrong change
	@$(if $(UNTIL),$(BIN)/python tests/run_deadline.py $(SO_FAR) $(UNTIL),echo 'make test: everything holds')

test-lab: setup ## peers, chaos, benchmarks, the console in a browser, images, long ranges of seeds, call sites, types of columns; or: make test-lab STAGES=chaos
	@$(BIN)/python tests/lab/stages.py $(STAGES)

mutants: setup ## known faults, one by one, that the tests have to find; or N of them: make mutants N=8
	@PYTHONPATH=tests $(BIN)/python -m mutants $(N)

lint: setup ## ruff, mypy --strict, import contracts
	@echo '== ruff'
	@$(BIN)/ruff check .
	@echo '== mypy'
	@$(BIN)/mypy
	@$(BIN)/mypy $$($(BIN)/python tests/mypy_modules.py)
	@echo '== import-linter'
	@$(BIN)/lint-imports

# mypy uses one core, for over a minute where it has no cache; the seeds use what is left.
checks: setup ## lint and simulation, at the same time
	@$(STEPS) lint 'unset PYTHONPATH; $(MAKE) --no-print-directory lint' \
	  simulation 'unset PYTHONPATH; $(MAKE) --no-print-directory simulation'

unit: setup ## tests without a cluster
	@echo '== unit tests'
	@$(BIN)/python -m pytest tests/unit -n 2 --dist worksteal --durations=5

simulation: setup ## a thousand seeds of crashes, cuts and late messages, half of them others each day
	@echo '== simulation'
	@$(BIN)/rekindle sim --seeds 1..500
	@$(BIN)/rekindle sim --seeds today:500

integration: setup ## tests on a real Spark cluster, two at a time, all of them: in `make test` the long files take turns
	@echo '== integration tests'
	@PYTHONPATH=recovery:e2e $(BIN)/python -m testbed build versitygw || true  # the tests say what is missing
	@# The longest files come first (tests/file_order.py); pytest-xdist would order them by number of tests.
	@# A slow store takes minutes by its nature: a stage of the laboratory has it.
	@$(BIN)/python -m pytest tests/integration --ignore tests/integration/test_slow_store.py -v -n 2 --dist loadfile --no-loadscope-reorder --durations=15 $(TURN) $(if $(UNTIL),$(DEADLINE) --then tests/kubernetes)

kubernetes: setup ## tests on a real Kubernetes control plane, two at a time
	@echo '== tests on Kubernetes'
	@PYTHONPATH=recovery:e2e $(BIN)/python -m testbed build all || true  # the tests say what is missing
	@$(BIN)/python -m pytest tests/kubernetes -v -n 2 --dist loadfile --no-loadscope-reorder --durations=15 $(TURN) $(DEADLINE)

testbed: check-python ## find or build that control plane, with kubectl, helm and a server of S3 (once, some minutes)
	@$(TESTBED) build all versitygw

images: setup ## the images for Kubernetes, without a registry (once, some minutes)
	@PYTHONPATH=recovery:e2e $(BIN)/python -m images build

lock: setup ## write anew what images install, with the digests of all files (uv)
	@PYTHONPATH=recovery:e2e $(BIN)/python -m images lock

audit: setup ## compare what images install with a copy of OSV's advisories: make audit ADVISORIES=PATH
	@PYTHONPATH=recovery:e2e $(BIN)/python -m images audit $(DOCUMENT) $(if $(ADVISORIES),--advisories $(ADVISORIES))

bench-operator: setup ## the operator with 5,000 nodes and 100,000 pods
	@PYTHONPATH=recovery:operator:e2e $(BIN)/python -m operator_benchmark operator

packages: ## install what clusters of real nodes need (Debian, root); what tests in a browser need: PACKAGES=chromium
	@missing=$$(for name in $(PACKAGES); do dpkg -s $$name >/dev/null 2>&1 || echo $$name; done); \
	  if [ -z "$$missing" ]; then exit 0; fi; set -- $$missing; \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "installing $$*"; \
	    apt-get -q update >/dev/null && apt-get -q install --yes --no-install-recommends "$$@" >/dev/null; \
	  else \
	    echo "make: these packages are missing: $$*; as root" \
	      "\`apt-get install --no-install-recommends $$*\`" >&2; \
	  fi

cluster: setup packages ## tests on real kubelets and containerds on this machine (root)
	@echo '== tests on real nodes'
	@$(BIN)/python -m pytest tests/cluster -v --durations=5

e2e: setup packages ## the scenarios of docs/e2e.md on such a cluster, or one: make e2e SCENARIO=zone-loss (root)
	@PYTHONPATH=recovery:operator:e2e $(BIN)/python -m scenarios $(SCENARIO) \
	  $(if $(STRATEGIES),--strategies $(STRATEGIES)) $(if $(NODES),--nodes $(NODES))

# It needs nothing that is installed, so that it does not install first what a user wants to be rid of.
INSTALLED_PYTHON := $(wildcard $(BIN)/python)
e2e-clean: $(if $(INSTALLED_PYTHON),,check-python) ## remove what a cluster of real nodes has left on this machine, and nothing else
	@PYTHONPATH=recovery:e2e $(or $(INSTALLED_PYTHON),$(PYTHON)) -m testbed cluster clean

wheel: setup ## build the wheel, jar included, into dist/
	@rm -rf build dist
	$(BIN)/pip wheel -q --no-deps -w dist .
	@$(BIN)/python -m zipfile -l dist/rekindle-*.whl | grep rekindle-exchange.jar || \
	  { echo 'make wheel: the wheel is without the jar; run `make clean wheel`' >&2; exit 1; }

clean: ## remove all that make has made
	rm -rf $(VENV) build dist recovery/*.egg-info benchmarks/*.egg-info $(JAR) benchmarks/rekindle_peers/*/jvm/*.jar \
	  .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find recovery operator benchmarks e2e tests -name __pycache__ -type d -prune -exec rm -rf {} +

# Not a prerequisite of the files below: it has no file of its own and would make them always old.
check-tools: check-python
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo 'make setup: $(PYTHON) cannot make virtual environments;' \
	    'on Debian `apt-get install python3-venv`' >&2; \
	  exit 2; }
	@major=$$(PATH="$${JAVA_HOME:+$$JAVA_HOME/bin:}$$PATH" javac -version 2>&1 | sed -n 's/^javac \([0-9]*\).*/\1/p'); \
	  [ "$${major:-0}" -ge 17 ] || { \
	  echo 'make setup: there is no javac 17 or newer; install a JDK,' \
	    'on Debian `apt-get install openjdk-17-jdk-headless`' >&2; \
	  exit 2; }

check-python:
	@command -v $(PYTHON) >/dev/null 2>&1 || { \
	  echo 'make: there is no $(PYTHON); install Python 3.11 or newer,' \
	    'on Debian `apt-get install python3 python3-venv`, or name it: make PYTHON=python3.12 ...' >&2; \
	  exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo 'make: $(PYTHON) is' "$$($(PYTHON) -V);" \
	    'install Python 3.11 or newer, or name one: make PYTHON=python3.12 ...' >&2; \
	  exit 2; }

$(INSTALLED): pyproject.toml benchmarks/pyproject.toml constraints.txt
	@$(MAKE) --no-print-directory check-tools
	@if [ -e $(BEGUN) ]; then \
	  echo 'the last installation was interrupted: $(VENV) is made again'; \
	  find $(VENV) -mindepth 1 -maxdepth 1 ! -name $(notdir $(BEGUN)) -exec rm -rf {} +; \
	fi
	@mkdir -p $(VENV) && touch $(BEGUN)
	@echo 'installing into $(VENV): 1.6 GB, some minutes'
	@# Python compiles what it imports; pip would compile all of it, which is 50 s of CPU.
	@$(STEPS) pip 'unset PYTHONPATH; { [ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV); } && \
	    $(BIN)/python -m pip install -q --disable-pip-version-check --no-compile \
	      -c constraints.txt -e ".[local,dev]" -e benchmarks' || { \
	  code=$$?; [ ! -e $@ ] || [ $$code -ge 128 ] || rm -f $(BEGUN); exit $$code; }
	@rm -f $(BEGUN) && touch $@
