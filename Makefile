# `make demo` and `make test` set up everything they need; see README.md.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
BENCH_STAMP := $(VENV)/.installed-bench
DOCS_STAMP := $(VENV)/.installed-docs

.DEFAULT_GOAL := help
.PHONY: help demo demo-planes test test-all check docs gallery format bench-throughput bench-minibatch bench-budgets bench-hard bench-shrinkage bench-profile bench bench-quick bench-page bench-far bench-draws calibrate attack attack-quick attack-rows attack-page mutate same-bits bench-cost bench-balanced bench-nuts bench-cold bench-tall bench-formula bench-agreement bench-sbc bench-evidence bench-quantiles bench-loo bench-ends bench-small bench-levels bench-flights bench-kinetic bench-predict bench-effects bench-passes bench-scale bench-scheduler bench-mixed bench-mixed-scale bench-mixed-sbc bench-mixed-crossed bench-galleries mixed-peers browser reproduce reproduce-quick clean bench-arrivals-on-disk bench-arrivals bench-priors-sbc bench-families bench-wide stale stale-notes wheel

help:
	@echo "make demo   will my flight be late? 327,346 flights, odds ratios, a prediction, a page"
	@echo "make demo-planes  is it the plane? the same flights with an effect of every one of 4,037 planes"
	@echo "make test   run the tests, in under ten minutes on two cores"
	@echo "make test-all run the slow ones too: more paths, more programs, longer runs"
	@echo "make browser look for Chromium, which the page tests need, and install it where that is allowed"
	@echo "make check  format, lint and types"
	@echo "make docs   the documentation site, into build/site"
	@echo "make gallery run the worked cases of the site whose code has changed, and write what they print and draw into them"
	@echo "make format rewrite files in the project's format"
	@echo "make bench       every peer on every posterior, mixed and wide ones too, one after the other (resumable, under 90 minutes)"
	@echo "make bench-quick the same on four posteriors, a mixed and a wide one (under 10 minutes)"
	@echo "make bench-page  write the tables of docs/benchmarks.md from what is stored"
	@echo "make calibrate   is the error bar true? 200 seeds of every class of problem, and SBC (resumable)"
	@echo "make attack      every case in which it was once caught, 15 seeds each (resumable, 20 minutes)"
	@echo "make attack-quick  five seeds of those that are quick (5 minutes)"
	@echo "make attack-rows   1 to 10 deciding rows of 10^3 to 10^6, 50 seeds of every class (resumable, hours)"
	@echo "make attack-page   write what was found into docs/what-we-tried-to-break.md"
	@echo "make mutate      deliberate bugs, each of which must turn a test red (20 minutes)"
	@echo "make same-bits   has a bit of any answer changed? small calls of every kind, against those on record (5 minutes)"
	@echo "make bench-throughput  time a level beside BlackJAX (3 minutes)"
	@echo "make bench-minibatch   time the three minibatch laws (1 minute)"
	@echo "make bench-budgets     end ten problems at twenty instants each (15 minutes)"
	@echo "make bench-shrinkage   a horseshoe, a regularised one and R2D2 on 100,000 rows of 100 columns, beside NUTS (20 minutes)"
	@echo "make bench-hard        a horseshoe and InstEval within a minute or two each: do they end in a result? (12 minutes)"
	@echo "make bench-profile     where the time of a level goes (1 minute)"
	@echo "make bench-far         where the time goes where the Gaussian is a poor control (1 minute)"
	@echo "make bench-draws       draws beside long references, R-hat and ESS, and 10,000 of them at 1,000,000 rows (20 minutes)"
	@echo "make bench-arrivals    the flights of a year day by day, and 10^7 rows in a hundred segments (an hour)"
	@echo "make bench-cost        cost against the number of rows, 10^3 to 10^7 (resumable)"
	@echo "make bench-balanced    the balanced anchor and its control beside the ladder about the mode (resumable, 20 minutes)"
	@echo "make bench-kinetic     kinetic steps beside exponential ones, near a Gaussian and far from one (resumable, 30 minutes)"
	@echo "make bench-nuts        the whole call beside NumPyro's NUTS (5 minutes)"
	@echo "make bench-cold        a fresh process on 100,000 rows, program by program, cached and warm (3 minutes)"
	@echo "make bench-tall        the paper's problem, and ten million rows (5 minutes)"
	@echo "make bench-formula     a formula and a Parquet file beside reading and estimating (3 minutes)"
	@echo "make bench-agreement   every family beside NumPyro's NUTS"
	@echo "make bench-sbc         simulation-based calibration of every family (resumable)"
	@echo "make bench-evidence    log evidences over 200 seeds beside quadrature, plain weights and bridgesampling (resumable)"
	@echo "make bench-quantiles   are the stated errors of interval ends and probabilities true?"
	@echo "make bench-loo         leave-one-out: true errors over seeds, ten million rows, ArviZ and R's loo (resumable)"
	@echo "make bench-ends        what interval ends to a tolerance cost, model by model (resumable, half an hour)"
	@echo "make bench-small       draws with weights beside the ladder: fresh process, warm, and true errors over seeds"
	@echo "make bench-levels      categories of 24 to 10,000 levels, beside scikit-learn and statsmodels (npm has the flights)"
	@echo "make bench-mixed       mixed models beside lme4, glmmTMB, GPBoost, statsmodels and NUTS (resumable, hours)"
	@echo "make bench-mixed-scale memory and seconds of mixed models on disk, 10^6 and 10^7 rows (resumable, half an hour)"
	@echo "make bench-mixed-sbc   simulation-based calibration of mixed models: scales near 0, groups of one row (resumable, hours)"
	@echo "make bench-priors-sbc  simulation-based calibration of stated and of shrinkage priors (resumable)"
	@echo "make bench-families    later families and stated priors beside SciPy's densities: RMSE and coverage over seeds (resumable)"
	@echo "make bench-mixed-crossed  crossed and nested effects beside long runs of NumPyro's NUTS (resumable, half an hour)"
	@echo "make bench-galleries   models of PyMC's and bambi's galleries beside their own NUTS (resumable, a quarter of an hour)"
	@echo "make mixed-peers       look for R's lme4 and glmmTMB and for GPBoost, and install them where that is allowed"
	@echo "make bench-flights     an exact reference for the flights, and the answer beside it"
	@echo "make bench-effects     coverage of the errors of sensitivities and average effects, 200 seeds (an hour)"
	@echo "make bench-passes      where the passes of set-up go, stage by stage: counts, no timings (4 minutes)"
	@echo "make bench-predict     a million rows, and memory for ten million"
	@echo "make bench-arrivals-on-disk  a day of rows appended, coded and withdrawn, at 10^5 to 10^7 rows (10 minutes)"
	@echo "make bench-scale       memory at 10^8 rows, a pass beside NumPy, two workers beside one (15 minutes)"
	@echo "make bench-wide        MNIST with 7,850 coefficients, 4,000 columns, 50,000 levels: seconds and memory (resumable, an hour)"
	@echo "make bench-scheduler   a thousand workers of uneven speed, in virtual time (10 minutes)"
	@echo "make reproduce         the paper's experiments in full (under half an hour)"
	@echo "make reproduce-quick   the same with fewer paths and repeats (two minutes)"
	@echo "make wheel             build the wheel, and use it with the core dependencies alone, on Python 3.11 to 3.13 (5 minutes)"
	@echo "make stale             which figures are older than the code, and which benchmarks measure them again"
	@echo "make stale-notes       the same, and pages that show such figures say so above their tables"
	@echo "make clean  remove the environment"

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install -qq --disable-pip-version-check -c constraints.txt -e '.[dask,data,demo,dev,export,gallery,numpyro,plot,pymc,sklearn]'
	@touch $@

$(BENCH_STAMP): $(STAMP)
	@$(BIN)/pip install -qq --disable-pip-version-check -c constraints.txt -e '.[bench,dask,data,demo,dev,export,gallery,numpyro,plot,pymc,sklearn]'
	@touch $@

$(DOCS_STAMP): $(STAMP)
	@$(BIN)/pip install -qq --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@

demo: $(STAMP)
	@$(BIN)/python examples/demo.py

demo-planes: $(STAMP)
	@$(BIN)/python examples/planes.py

# Most programs of the tests are compiled once and run for milliseconds: not to optimise them saves a third of the time.
QUICKLY := --xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false \
	--xla_cpu_parallel_codegen_split_count=1

# The page tests need a browser. Where Debian's may be installed it is; elsewhere one line says what did not run.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null \
	|| { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && timeout 240 sh -c \
	'apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium' >/dev/null 2>&1; } \
	|| echo "*** THE PAGE TESTS DO NOT RUN: there is no Chromium here, and it could not be installed ***"

# What one worker has compiled the others find, and so does the next run.
COMPILED := JAX_COMPILATION_CACHE_DIR=$(CURDIR)/$(VENV)/compiled JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0.2

test: $(STAMP) browser
	@$(COMPILED) XLA_FLAGS="$(QUICKLY) $$XLA_FLAGS" $(BIN)/python -m pytest -n 4 --dist worksteal --durations=30 -m "not slow"

test-all: $(STAMP) browser
	@$(BIN)/python -m pytest -n 3 --dist worksteal --durations=8

check: $(STAMP)
	@$(BIN)/ruff format --check --quiet . || { echo "run 'make format'"; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy

docs: $(DOCS_STAMP)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "build/site/index.html; to search it: $(BIN)/python -m http.server --directory build/site"

gallery: $(STAMP)
	@$(BIN)/python docs/gallery/execute.py

format: $(STAMP)
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --quiet --fix .

bench-throughput: $(BENCH_STAMP)
	@$(BIN)/python benchmarks/throughput.py

bench-minibatch: $(BENCH_STAMP)
	@$(BIN)/python benchmarks/minibatch.py

bench-budgets: $(BENCH_STAMP)
	@$(BIN)/python benchmarks/budgets.py

bench-hard: $(BENCH_STAMP)
	@$(BIN)/python benchmarks/hard_models.py

bench-shrinkage: $(BENCH_STAMP)
	@$(BIN)/python benchmarks/shrinkage.py

bench-profile: $(BENCH_STAMP)
	@$(BIN)/python benchmarks/profile_level.py

bench-far: $(BENCH_STAMP)
	@$(BIN)/python benchmarks/far_from_gaussian.py

bench-arrivals: $(BENCH_STAMP)
	@$(BIN)/python benchmarks/arrivals.py

bench-draws: $(BENCH_STAMP)
	@$(BIN)/python benchmarks/draws.py

bench: $(BENCH_STAMP) mixed-peers
	@$(BIN)/python benchmarks/bench.py

bench-quick: $(BENCH_STAMP) mixed-peers
	@$(BIN)/python benchmarks/bench.py --quick

bench-page: $(STAMP)
	@$(BIN)/python benchmarks/bench.py --page

calibrate: $(BENCH_STAMP)
	@$(BIN)/python benchmarks/calibrate.py
	@$(BIN)/python benchmarks/arrivals_calibration.py

attack: $(BENCH_STAMP)
	@$(BIN)/python benchmarks/attacks.py

attack-quick: $(BENCH_STAMP)
	@$(BIN)/python benchmarks/attacks.py --quick

attack-rows: $(BENCH_STAMP)
	@$(BIN)/python benchmarks/rows_that_matter.py

attack-page: $(STAMP)
	@$(BIN)/python benchmarks/attacks.py --page

mutate: $(STAMP)
	@$(BIN)/python benchmarks/mutations.py

same-bits: $(STAMP)
	@$(COMPILED) XLA_FLAGS= $(BIN)/python benchmarks/same_bits.py --against benchmarks/results/same_bits.json

bench-cost: $(BENCH_STAMP)
	@$(BIN)/python benchmarks/cost.py

bench-balanced: $(BENCH_STAMP)
	@$(BIN)/python benchmarks/balanced.py --calibrate 40

bench-kinetic: $(BENCH_STAMP)
	@$(BIN)/python benchmarks/kinetic.py --calibrate 40

bench-nuts: $(BENCH_STAMP)
	@$(BIN)/python benchmarks/nuts.py

bench-cold: $(BENCH_STAMP)
	@$(BIN)/python benchmarks/cold_start.py

bench-tall: $(BENCH_STAMP)
	@$(BIN)/python benchmarks/tall.py

bench-formula: $(BENCH_STAMP)
	@$(BIN)/python benchmarks/formula.py

bench-agreement: $(BENCH_STAMP)
	@$(BIN)/python benchmarks/agreement.py

bench-sbc: $(BENCH_STAMP)
	@$(BIN)/python benchmarks/sbc.py

bench-evidence: $(BENCH_STAMP)
	@$(BIN)/python benchmarks/evidence.py

bench-quantiles: $(BENCH_STAMP)
	@$(BIN)/python benchmarks/quantiles.py

bench-loo: $(BENCH_STAMP)
	@$(BIN)/python benchmarks/leave_one_out.py
	@$(BIN)/python benchmarks/loo_by_group.py

bench-small: $(BENCH_STAMP)
	@$(BIN)/python benchmarks/small_tables.py --out benchmarks/results/small_tables.json

bench-ends: $(BENCH_STAMP)
	@$(BIN)/python benchmarks/interval_ends.py

LEVELS := .venv/flights3m
bench-levels: $(BENCH_STAMP)
	@mkdir -p $(LEVELS)
	@test -f $(LEVELS)/flights-3m.parquet || (cd $(LEVELS) && npm pack --silent vega-datasets@3.2.1 > /dev/null && \
	  tar xzf vega-datasets-3.2.1.tgz --strip-components=2 package/data/flights-3m.parquet)
	@$(BIN)/python benchmarks/levels.py --folder $(LEVELS)

# Peers that pip does not bring, or that want packages of their own. What cannot be installed is a row that says so.
mixed-peers: $(BENCH_STAMP)
	@command -v Rscript >/dev/null && Rscript -e 'library(lme4); library(glmmTMB)' >/dev/null 2>&1 \
	|| { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && timeout 600 sh -c \
	'apt-get update -qq && apt-get install -y -qq --no-install-recommends r-base-core r-cran-lme4 r-cran-glmmtmb' \
	>/dev/null 2>&1; } || echo "*** WITHOUT lme4 AND glmmTMB: R's packages are not here, and could not be installed ***"
	@$(VENV)/peers/bin/python -c 'import gpboost' 2>/dev/null || { $(BIN)/python -m venv $(VENV)/peers \
	&& timeout 600 $(VENV)/peers/bin/pip install -qq --disable-pip-version-check gpboost pandas 2>/dev/null; } \
	|| echo "*** WITHOUT GPBoost: it could not be installed ***"

bench-mixed: $(BENCH_STAMP) mixed-peers
	@$(BIN)/python benchmarks/mixed_references.py
	@$(BIN)/python benchmarks/mixed.py

bench-mixed-scale: $(BENCH_STAMP)
	@$(BIN)/python benchmarks/mixed_scale.py

bench-mixed-sbc: $(BENCH_STAMP)
	@$(BIN)/python benchmarks/mixed_sbc.py

bench-priors-sbc: $(BENCH_STAMP)
	@$(BIN)/python benchmarks/priors_sbc.py

bench-families: $(BENCH_STAMP)
	@$(BIN)/python benchmarks/family_calibration.py

bench-mixed-crossed: $(BENCH_STAMP)
	@$(BIN)/python benchmarks/mixed_crossed.py

bench-galleries: $(BENCH_STAMP)
	@$(BIN)/python benchmarks/galleries.py

bench-flights: $(BENCH_STAMP)
	@$(BIN)/python benchmarks/flights.py

bench-effects: $(BENCH_STAMP)
	@$(BIN)/python benchmarks/workflow_answers.py

bench-passes: $(BENCH_STAMP)
	@$(BIN)/python benchmarks/setup_passes.py --out benchmarks/results/setup_passes.json

bench-predict: $(BENCH_STAMP)
	@$(BIN)/python benchmarks/predict.py

bench-arrivals-on-disk: $(BENCH_STAMP)
	@$(BIN)/python benchmarks/arrivals_on_disk.py

bench-wide: $(BENCH_STAMP)
	@$(BIN)/python benchmarks/wide.py

bench-scale: $(BENCH_STAMP)
	@$(BIN)/python benchmarks/scale.py

bench-scheduler: $(BENCH_STAMP)
	@$(BIN)/python benchmarks/scheduler.py

wheel: $(STAMP)
	@$(BIN)/python -m pytest -n 0 -rs tests/house/test_wheel.py

stale: $(STAMP)
	@$(BIN)/python benchmarks/ages.py

stale-notes: $(STAMP)
	@$(BIN)/python benchmarks/age_notes.py

reproduce: $(STAMP)
	@$(BIN)/tallbayes reproduce

reproduce-quick: $(STAMP)
	@$(BIN)/tallbayes reproduce --quick

clean:
	@rm -rf $(VENV) build dist
