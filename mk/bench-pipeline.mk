# make bench-pipeline: the figures of bench/plan/pipeline.md, computed anew (seconds, no GPU).
.PHONY: bench-pipeline
$(O)/bench/plan/pipeline: bench/plan/pipeline.c $(O)/libweft.a
	@mkdir -p $(@D)
	$(CC) $(ALLFLAGS) -o $@ $< $(O)/libweft.a $(LIBS)
bench-pipeline: $(O)/bench/plan/pipeline
	$< > bench/plan/pipeline.md.new
	mv bench/plan/pipeline.md.new bench/plan/pipeline.md
