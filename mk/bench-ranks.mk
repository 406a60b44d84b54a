# make bench-ranks: collectives and a data-parallel step on two ranks.
.PHONY: bench-ranks
$(O)/bench/ranks: $(O)/bench/ranks.o $(O)/libweft.a
	@mkdir -p $(@D)
	@echo "  LINK $@"; $(CC) $(SANFLAGS) -fopenmp -o $@ $^ $(LIBS)
bench-ranks: $(O)/bench/ranks
	OMP_NUM_THREADS=1 mpirun -n 2 $< $(B)
bench: bench-ranks
