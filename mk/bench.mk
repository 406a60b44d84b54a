# `make bench`: every benchmark, ours beside its peer in one run. WEFT_PEER_PYTHON: a python that has PyTorch (and diffusers).
#   make bench-kernels B=attention   single kernels of `cpu`           make bench-loader SHARDS=DIR   shards, also decoded batches
#   make bench-models                training step and VAE as a whole  make bench-near                near-duplicates of 100,000 shots
#   make bench-families B=flux       forward pass and training step of every family at a small size
#   make bench-ranks                 collectives and a step on two ranks
#   make bench-fusion B=links        layers over frames and places in slices, on modelled ranks (not part of `make bench`; paper, sweep, others)
#   make bench-parallel              a DiT's step on two ranks in every layout, beside PyTorch's own (not part of `make bench`)
#   make bench-mixed                 iterations of mixed samples on two ranks under four policies (not part of `make bench`; FOOTAGE=DIR, STEPS, ROUNDS)
#   make bench-generate              videos beside diffusers, and Wan's autoencoder at 480p; B=small: to try, B=models, B=vae: a part (not part of `make bench`)
#   make bench-memory                a DiT under limits, as bench/README.md has it (not part of `make bench`)
#   make bench-cache                 caches, guidance intervals and samplers on a trained model (MODEL=DIR, PROMPTS=FILE; not part of `make bench`)
#   make bench-foresight             six runs foreseen and then done; writes their table into bench/README.md (not part of `make bench`)
#   make bench-modelled              pipelines of 16, 32, 64 ranks on modelled clusters (not part of `make bench`; RANKS="16")
#   make bench-pipeline              writes bench/plan/pipeline.md anew (not part of `make bench`)
#   make bench-robust                the same on 16 and 64 ranks under price errors (RANKS=16 N=5)
#   make bench-cascades              iterations of cascades on 16, 32, 64 modelled ranks beside their plans (not part of `make bench`; RANKS=16 N=5)
BENCHES := kernels loader models families near ranks fusion

.PHONY: bench bench-cascades bench-robust bench-mixed bench-pipeline bench-parallel bench-memory bench-foresight bench-generate bench-modelled $(BENCHES:%=bench-%)
bench: $(filter-out bench-fusion,$(BENCHES:%=bench-%))
test-bin: $(BENCHES:%=$(O)/bench/%) $(O)/bench/cascades # who changes an interface sees which benchmark it breaks
$(BENCHES:%=$(O)/bench/%) $(O)/bench/cascades: $(O)/bench/%: $(O)/bench/%.o $(O)/libweft.a
	$(LINK)
bench-kernels bench-models bench-families: bench-%: $(O)/bench/%
	$< $(B)
bench-loader: $(O)/bench/loader
	$< $(if $(SHARDS),$(SHARDS) 9 128 128)
bench-fusion: $(O)/bench/fusion
	$< $(B)
bench-near: $(O)/bench/near
	$<
bench-ranks: $(O)/bench/ranks
	OMP_NUM_THREADS=1 mpirun -n 2 $< $(B)

bench-cascades: $(O)/bench/cascades
	for n in $(or $(RANKS),16 32 64); do for s in 360p 720p 1080p; do for l in fast slow; do \
	    OMP_NUM_THREADS=1 $< $$((n / 8)) $$s $(or $(N),20) $$l || exit 1; done; done; done

bench-robust: $(O)/bench/cascades
	for n in $(or $(RANKS),16 64); do for s in 360p 720p 1080p; do \
	    OMP_NUM_THREADS=1 $< $$((n / 8)) $$s $(or $(N),10) fast robust || exit 1; done; done

bench-modelled: $(O)/weft
	WEFT=$< bench/modelled.sh

$(O)/bench/plan/pipeline: $(O)/bench/plan/pipeline.o $(O)/libweft.a
	$(LINK)
bench-pipeline: $(O)/bench/plan/pipeline
	$< >bench/plan/pipeline.md.new && mv bench/plan/pipeline.md.new bench/plan/pipeline.md
MODEL   ?= demo/dit/model
PROMPTS ?= demo/prompts.txt
.PHONY: bench-cache
bench-cache: $(O)/weft
	$< eval cache --model $(MODEL) --prompts $(PROMPTS) --steps 30 --least 3 $(if $(LPIPS),--lpips $(LPIPS))
bench-memory: $(O)/weft
	bench/memory.sh $<

bench-parallel bench-foresight bench-mixed bench-generate: bench-%: $(O)/weft
	WEFT=$(abspath $(O)/weft) bench/$*.sh $(B)
