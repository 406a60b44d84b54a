# `make bench`: the benchmarks of the first table, each next to its peer in one run. WEFT_PEER_PYTHON:
# a python that has PyTorch (and diffusers). Each target prints its tables and stores their rows in
# bench/results (BENCH_RECORD=no: prints only).
#
#   bench-kernels B=attention   single kernels of `cpu`
#   bench-loader SHARDS=DIR     shards, also decoded batches
#   bench-models                complete training step and VAE
#   bench-families B=flux       forward pass and training step of every family at a small size
#   bench-near                  near-duplicates of 100,000 shots
#   bench-ranks                 collectives and a step on two ranks
#   bench-fusion                layers over frames and rows in slices, on simulated ranks
#                               (B=links, paper, sweep, others: not part of `make bench`)
#
# Other targets:
#
#   bench-parallel              a DiT's step on two ranks in every layout, next to PyTorch's
#   bench-mixed                 samples of mixed sizes on two ranks under four policies
#                               (FOOTAGE=DIR, STEPS, ROUNDS)
#   bench-causal                causal Wan with and without its cache of keys and values (ROUNDS, LENGTHS)
#   bench-drift                 drift of brightness and background of 41 frames, in one piece and in
#                               blended windows (FOOTAGE=DIR, DIR, SIDE, STEPS, SEEDS)
#   bench-stream                memory of one layer of published width, in memory and streamed
#   bench-packing               tokens/s of packed rows next to buckets (SET, TOKENS, RANKS, SAMPLES, STEPS,
#                               ROUNDS), and bounds by counting
#   bench-storage               a bucket next to aws, rclone, webdataset and streaming
#                               (STORAGE_TOOLS=DIR, STORAGE_PYTHON, MIB, ROUNDS, B=objects, samples, cold, clips)
#   bench-shots VIDEO=FILE      shot detection next to PySceneDetect
#   bench-gpu                   launches, bytes and minimum times on H100, lines of source; no GPU
#   bench-gpu-host              CPU time that enqueuing a training step on backend cuda takes, by launch,
#                               on the emulated driver
#   bench-curate-balance        workers of a curation under three policies, simulated, and the memory
#                               of the driver
#   bench-curate-executed       tools/ray_curate.py on Ray with workers that sleep, next to the best
#                               fixed assignment, and its memory (WEFT_RAY_PYTHON, RAY_WORKERS)
#   bench-predicted-generation  predicted and measured seconds of videos (MODEL=DIR)
#   bench-predicted-training    predicted and measured seconds of six training runs
#   bench-generate              videos next to diffusers, and Wan's autoencoder at 480p
#                               (B=small: short; B=models, B=vae: one part)
#   bench-int8 M=flux           PSNR of bf16 and int8 against f32
#   bench-int8-scales M=flux    other places of the scales of int8, in PyTorch
#   bench-half                  bf16 and int8 next to f32 and PyTorch in bf16, on one thread
#                               (B=kernels, models, generation, memory, bounds: one part)
#   bench-earlier EARLIER=BUILD times of an earlier build and of this one with AVX2 and AVX-512
#                               (B=kernels, kernels:PATTERN, models, generation: one part)
#   bench-memory                a DiT with memory limits
#   bench-shared-devices        videos that share 8 simulated H100 under several policies
#                               (JOBS, SEEDS)
#   bench-serve-waits           predicted and actual waits of a server (MODEL=DIR, JOBS, LOAD)
#   bench-cache-families        thresholds of families (DEMO, DIR: results, not computed again)
#   bench-cache                 caches, guidance intervals and samplers on a trained model
#                               (MODEL=DIR, PROMPTS=FILE)
#   bench-serve                 a server: start, overhead, requests, a long queue (MODEL=DIR)
#   bench-simulated             pipelines of 16, 32, 64 ranks on simulated clusters (RANKS="16")
#   bench-pipeline              writes bench/plan/pipeline.md and its plots
#   bench-robust                plans on 16 and 64 ranks under price errors, by the cost model
#                               (RANKS=16 N=5)
#   bench-robust-ahead          the same with encoders one iteration ahead (RANKS=16 N=5)
#   bench-robust-bounds         lower bounds of these iterations, for any dispatch (RANKS=16 N=5)
#   bench-robust-executed       held-out prices, executed encoders (RANKS=16 N=5)
#   bench-robust-played         the same plans in the simulation of the planner (RANKS=16 N=5)
#   bench-cascades              iterations of cascades on 16, 32, 64 simulated ranks and their plans
#                               (RANKS=16 N=5)
RECORD  := tools/bench_tables.py record
BENCHES := kernels loader models families near ranks fusion

.PHONY: bench bench-cascades bench-robust bench-robust-ahead bench-robust-bounds bench-robust-executed bench-robust-played bench-mixed bench-pipeline bench-parallel bench-memory bench-generate bench-simulated $(BENCHES:%=bench-%)
bench: $(filter-out bench-fusion,$(BENCHES:%=bench-%))

# ---- the targets of CMake that each goal needs --------------------------------------------------
TARGETS_bench = $(foreach b,$(filter-out fusion,$(BENCHES)),bench/$(b))
$(foreach b,$(BENCHES),$(eval TARGETS_bench-$(b) = bench/$(b)))
TARGETS_bench-cascades = bench/cascades
TARGETS_bench-robust   = bench/robust
TARGETS_bench-robust-ahead = bench/robust
TARGETS_bench-robust-bounds = bench/robust
TARGETS_bench-robust-executed = bench/cascades
TARGETS_bench-robust-played = bench/cascades
TARGETS_bench-pipeline = bench/plan/pipeline
TARGETS_bench-storage = bench/storage
TARGETS_bench-gpu-host = bench/gpu_host weft_emu_driver
TARGETS_bench-half    = weft bench/kernels bench/models
TARGETS_bench-earlier = weft bench/kernels bench/models
NEED_WEFT := cache cache-families drift generate int8 memory mixed packing parallel predicted-generation predicted-training serve serve-waits shared-devices shots simulated stream
$(foreach b,$(NEED_WEFT),$(eval TARGETS_bench-$(b) = weft))

# ---- benchmarks ------------------------------------------------------------------------------
bench-kernels bench-models bench-families: bench-%:
	$(RECORD) $* $(O)/bench/$* $(B)
bench-loader:
	$(RECORD) loader $(O)/bench/loader $(if $(SHARDS),$(SHARDS) 9 128 128)
bench-fusion:
	$(RECORD) slices $(O)/bench/fusion $(B)
.PHONY: bench-gpu-host bench-curate-balance bench-curate-executed bench-shots bench-predicted-generation bench-predicted-training bench-shared-devices bench-serve-waits bench-packing bench-causal bench-drift bench-stream bench-storage
bench-shared-devices:
	$(RECORD) shared-devices bench/shared_devices.py $(abspath $(O)/weft)
bench-causal:
	WEFT=$(abspath $(O)/weft) $(RECORD) causal bench/causal.sh
bench-drift:
	WEFT=$(abspath $(O)/weft) $(RECORD) drift bench/drift.sh
bench-stream:
	$(RECORD) stream python3 -IS bench/stream.py $(abspath $(O)/weft)
bench-packing:
	WEFT=$(abspath $(O)/weft) $(RECORD) packing bench/packing.sh
	$(RECORD) packing python3 -IS bench/packing_bound.py
bench-storage:
	PROGRAM=$(abspath $(O)/bench/storage) $(RECORD) storage bench/storage.sh
bench-serve-waits:
	$(RECORD) serve-waits bench/serve_waits.py $(abspath $(O)/weft)
bench-curate-balance:
	$(RECORD) curate-balance bench/curate_balance.py
	$(RECORD) curate-driver bench/curate_balance.py --memory
bench-curate-executed:
	$(RECORD) curate-executed bench/curate_executed.py --workers $(or $(RAY_WORKERS),8)
	$(RECORD) curate-executed-memory bench/curate_executed.py --memory --workers 4
bench-shots:
	WEFT=$(abspath $(O)/weft) $(RECORD) shots bench/curate.sh $(VIDEO)
bench-predicted-generation:
	WEFT=$(abspath $(O)/weft) $(RECORD) generation bench/predicted_generation.sh
bench-predicted-training:
	WEFT=$(abspath $(O)/weft) $(RECORD) predicted-training bench/predicted_training.sh $(B)
bench-gpu:
	tools/bench_tables.py record-page gpu bench/gpu_figures.py --weft $(abspath $(O)/weft)
bench-gpu-host:
	WEFT_CUDA_LIBRARY=$(abspath $(O)/emu/libcuda.so.1) OMP_NUM_THREADS=1 $(RECORD) gpu-host $(O)/bench/gpu_host
bench-near:
	$(RECORD) shots $(O)/bench/near
bench-ranks:
	OMP_NUM_THREADS=1 $(RECORD) parallel mpirun -n 2 $(O)/bench/ranks $(B)

bench-cascades:
	for n in $(or $(RANKS),16 32 64); do for s in 360p 720p 1080p; do for l in fast slow; do \
	    OMP_NUM_THREADS=1 $(RECORD) cascades $(O)/bench/cascades $$((n / 8)) $$s $(or $(N),20) $$l || exit 1; done; done; done

bench-robust:
	for n in $(or $(RANKS),16 64); do for s in 360p 720p 1080p; do \
	    OMP_NUM_THREADS=1 $(RECORD) robust $(O)/bench/robust $$((n / 8)) $$s $(or $(N),10) $(or $(PLANS),1000) executed || exit 1; done; done
bench-robust-ahead:
	for n in $(or $(RANKS),16 64); do for s in 360p 720p 1080p; do \
	    OMP_NUM_THREADS=1 $(RECORD) robust $(O)/bench/robust $$((n / 8)) $$s $(or $(N),10) $(or $(PLANS),1000) ahead-executed || exit 1; done; done
bench-robust-bounds:
	for n in $(or $(RANKS),16 64); do for s in 360p 720p 1080p; do \
	    OMP_NUM_THREADS=1 $(RECORD) robust $(O)/bench/robust $$((n / 8)) $$s $(or $(N),10) 0 bound || exit 1; done; done
bench-robust-executed:
	for n in $(or $(RANKS),16 64); do for s in 360p 720p 1080p; do \
	    OMP_NUM_THREADS=1 $(RECORD) robust $(O)/bench/cascades $$((n / 8)) $$s $(or $(N),20) fast robust $(PLANS) || exit 1; done; done
bench-robust-played:
	for n in $(or $(RANKS),16 64); do for s in 360p 720p 1080p; do \
	    OMP_NUM_THREADS=1 $(RECORD) robust $(O)/bench/cascades $$((n / 8)) $$s $(or $(N),20) fast robust-played $(PLANS) || exit 1; done; done

bench-simulated:
	WEFT=$(O)/weft $(RECORD) pipelines bench/simulated.sh

bench-pipeline:
	tools/bench_tables.py record-page plan $(O)/bench/plan/pipeline bench/plan >bench/plan/pipeline.md.new && mv bench/plan/pipeline.md.new bench/plan/pipeline.md
MODEL   ?= demo/dit/model
PROMPTS ?= demo/prompts.txt
.PHONY: bench-serve
bench-serve:
	WEFT=$(abspath $(O)/weft) $(RECORD) serve bench/serve.py $(MODEL)
.PHONY: bench-cache
bench-cache:
	$(RECORD) cache bench/cache.sh $(O)/weft --model $(MODEL) --prompts $(PROMPTS) --steps 30 --timing-runs 3 $(if $(LPIPS),--lpips $(LPIPS))
.PHONY: bench-cache-families
bench-cache-families:
	$(RECORD) cache-families bench/cache_families.py $(O)/weft $(or $(DEMO),demo) $(or $(DIR),$(O)/cache-families)
.PHONY: bench-half bench-earlier bench-int8 bench-int8-scales
bench-int8:
	$(RECORD) int8 bench/int8.py $(O) $(M)
bench-int8-scales:
	@test -n "$$WEFT_PEER_PYTHON" || { echo "bench-int8-scales needs WEFT_PEER_PYTHON"; exit 1; }
	$(RECORD) int8 "$$WEFT_PEER_PYTHON" bench/int8_scales.py $(M)
bench-half:
	$(RECORD) half bench/half.py $(O) $(B)
bench-earlier:
	@test -n "$(EARLIER)" || { echo "bench-earlier needs EARLIER, the build folder of an earlier commit"; exit 1; }
	$(RECORD) half bench/earlier.py $(EARLIER) $(O) $(B)
bench-memory:
	$(RECORD) memory bench/memory.sh $(O)/weft

bench-parallel bench-mixed bench-generate: bench-%:
	WEFT=$(abspath $(O)/weft) $(RECORD) $(if $(filter generate,$*),generation,$*) bench/$*.sh $(B)
