# make bench-models: training step and VAE as whole programs, beside PyTorch if WEFT_PEER_PYTHON names one that has diffusers.
.PHONY: bench-models
$(O)/bench/models: $(O)/bench/models.o $(O)/libweft.a
	@mkdir -p $(@D)
	@echo "  LINK $@"; $(CC) $(SANFLAGS) -fopenmp -o $@ $^ $(LIBS)
bench-models: $(O)/bench/models
	$< $(B)
bench: bench-models
