# `make bench`: every benchmark, ours beside its peer in one run. WEFT_PEER_PYTHON: a python that has PyTorch (and diffusers).
#   make bench-kernels B=attention   single kernels of `cpu`           make bench-loader SHARDS=DIR   shards, also decoded batches
#   make bench-models                training step and VAE as a whole  make bench-near                near-duplicates of 100,000 shots
#   make bench-families B=flux       forward pass and training step of every family at a small size
#   make bench-ranks                 collectives and a step on two ranks
#   make bench-fusion B=links        layers over frames and places in slices, on modelled ranks (not part of `make bench`; paper, sweep, others)
#   make bench-parallel              a DiT's step on two ranks in every layout, beside PyTorch's own (not part of `make bench`)
#   make bench-mixed                 iterations of mixed samples on two ranks under four policies (not part of `make bench`; FOOTAGE=DIR, STEPS, ROUNDS)
#   make bench-shots VIDEO=FILE      shot detection beside PySceneDetect (not part of `make bench`)
#   make bench-predicted             seconds of videos as predicted and as measured (MODEL=DIR; not part of `make bench`)
#   make bench-generate              videos beside diffusers, and Wan's autoencoder at 480p; B=small: to try, B=models, B=vae: a part (not part of `make bench`)
#   make bench-memory                a DiT under limits of memory (not part of `make bench`)
#   make bench-cache                 caches, guidance intervals and samplers on a trained model (MODEL=DIR, PROMPTS=FILE; not part of `make bench`)
#   make bench-foresight             six runs foreseen and then done (not part of `make bench`)
#   make bench-modelled              pipelines of 16, 32, 64 ranks on modelled clusters (not part of `make bench`; RANKS="16")
#   make bench-pipeline              writes bench/plan/pipeline.md and its plots (not part of `make bench`)
#   make bench-robust                plans on 16 and 64 ranks under price errors, played by the cost model (RANKS=16 N=5)
#   make bench-robust-executed       the same plans, executed on modelled ranks (not part of `make bench`; RANKS=16 N=5)
#   make bench-cascades              iterations of cascades on 16, 32, 64 modelled ranks beside their plans (not part of `make bench`; RANKS=16 N=5)
# Each target prints its tables and stores their rows in bench/results (BENCH_RECORD=no: prints only).
RECORD  := tools/bench_tables.py record
BENCHES := kernels loader models families near ranks fusion

.PHONY: bench bench-cascades bench-robust bench-robust-executed bench-mixed bench-pipeline bench-parallel bench-memory bench-foresight bench-generate bench-modelled $(BENCHES:%=bench-%)
bench: $(filter-out bench-fusion,$(BENCHES:%=bench-%))

# ---- the targets of CMake that each goal needs --------------------------------------------------
TARGETS_bench = $(foreach b,$(filter-out fusion,$(BENCHES)),bench/$(b))
$(foreach b,$(BENCHES),$(eval TARGETS_bench-$(b) = bench/$(b)))
TARGETS_bench-cascades = bench/cascades
TARGETS_bench-robust   = bench/robust
TARGETS_bench-robust-executed = bench/cascades
TARGETS_bench-pipeline = bench/plan/pipeline
NEED_WEFT := cache foresight generate memory mixed modelled parallel predicted shots
$(foreach b,$(NEED_WEFT),$(eval TARGETS_bench-$(b) = weft))

# ---- benchmarks ------------------------------------------------------------------------------
bench-kernels bench-models bench-families: bench-%:
	$(RECORD) $* $(O)/bench/$* $(B)
bench-loader:
	$(RECORD) loader $(O)/bench/loader $(if $(SHARDS),$(SHARDS) 9 128 128)
bench-fusion:
	$(RECORD) slices $(O)/bench/fusion $(B)
.PHONY: bench-shots bench-predicted
bench-shots:
	WEFT=$(abspath $(O)/weft) $(RECORD) shots bench/curate.sh $(VIDEO)
bench-predicted:
	WEFT=$(abspath $(O)/weft) $(RECORD) generation bench/foretell.sh
bench-near:
	$(RECORD) shots $(O)/bench/near
bench-ranks:
	OMP_NUM_THREADS=1 $(RECORD) parallel mpirun -n 2 $(O)/bench/ranks $(B)

bench-cascades:
	for n in $(or $(RANKS),16 32 64); do for s in 360p 720p 1080p; do for l in fast slow; do \
	    OMP_NUM_THREADS=1 $(RECORD) cascades $(O)/bench/cascades $$((n / 8)) $$s $(or $(N),20) $$l || exit 1; done; done; done

bench-robust:
	for n in $(or $(RANKS),16 64); do for s in 360p 720p 1080p; do \
	    $(RECORD) robust $(O)/bench/robust $$((n / 8)) $$s $(or $(N),20) || exit 1; done; done
bench-robust-executed:
	for n in $(or $(RANKS),16 64); do for s in 360p 720p 1080p; do \
	    OMP_NUM_THREADS=1 $(RECORD) robust $(O)/bench/cascades $$((n / 8)) $$s $(or $(N),10) fast robust || exit 1; done; done

bench-modelled:
	WEFT=$(O)/weft $(RECORD) pipelines bench/modelled.sh

bench-pipeline:
	$(O)/bench/plan/pipeline bench/plan >bench/plan/pipeline.md.new && mv bench/plan/pipeline.md.new bench/plan/pipeline.md
MODEL   ?= demo/dit/model
PROMPTS ?= demo/prompts.txt
.PHONY: bench-cache
bench-cache:
	$(RECORD) cache bench/cache.sh $(O)/weft --model $(MODEL) --prompts $(PROMPTS) --steps 30 --timing-runs 3 $(if $(LPIPS),--lpips $(LPIPS))
bench-memory:
	$(RECORD) memory bench/memory.sh $(O)/weft

bench-parallel bench-foresight bench-mixed bench-generate: bench-%:
	WEFT=$(abspath $(O)/weft) $(RECORD) $(if $(filter generate,$*),generation,$*) bench/$*.sh $(B)
