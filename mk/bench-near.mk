# make bench-near: near-duplicate search over 1000, 10000 and 100000 shots (minutes).
.PHONY: bench-near
$(O)/bench/near: $(O)/bench/near.o $(O)/libweft.a
	@mkdir -p $(@D)
	@echo "  LINK $@"; $(CC) $(SANFLAGS) -fopenmp -o $@ $^ $(LIBS)
bench-near: $(O)/bench/near
	$<
bench: bench-near
