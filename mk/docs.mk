# docs/verbs, the man page and bash completion come from the tables in src/cli.
docs: $(O)/weft
	@mkdir -p docs/verbs
	@for verb in $$($(O)/weft help --verbs); do \
		$(O)/weft help --markdown $$verb > docs/verbs/$$verb.md || exit 1; \
		echo "  DOC  docs/verbs/$$verb.md"; done

$(O)/weft.1: $(O)/weft
	@$< help --man > $@.tmp && mv $@.tmp $@
$(O)/weft.bash: $(O)/weft
	@$< help --bash > $@.tmp && mv $@.tmp $@
