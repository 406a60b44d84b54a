# The main job from nothing, into ./demo: installs what it needs, builds, trains, generates, reports.
demo: deps
	+$(MAKE) --no-print-directory all
	tools/demo.sh $(O)/weft demo
