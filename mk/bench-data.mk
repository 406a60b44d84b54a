# make bench-loader [SHARDS=DIR]: shards read from the page cache; with SHARDS also decoded batches.
.PHONY: bench-loader
$(O)/bench/loader: $(O)/bench/loader.o $(O)/libweft.a
	@mkdir -p $(@D)
	@echo "  LINK $@"; $(CC) $(SANFLAGS) -fopenmp -o $@ $^ $(LIBS)
bench-loader: $(O)/bench/loader
	$< $(if $(SHARDS),$(SHARDS) 9 128 128)
bench: bench-loader
