/* The sections of a verb's help: groups of options, sections of the config, tables of names. */
#ifndef WEFT_CLI_OPTIONS_HELP_SECTIONS_H
#define WEFT_CLI_OPTIONS_HELP_SECTIONS_H

#include "cli/options/verb.h"

typedef enum weft_help_kind {
    WEFT_HELP_DETAILS, /* all paragraphs of `details`; only if there are several */
    WEFT_HELP_OPTIONS, /* options of one group */
    WEFT_HELP_KEYS,    /* top-level keys of the config */
    WEFT_HELP_CONFIG,  /* one config section */
    WEFT_HELP_TABLE,   /* one table of `more` */
} weft_help_kind;

typedef struct weft_help_section {
    weft_help_kind kind;
    const char *name, *help;      /* borrowed from the tables */
    const weft_help_table *table; /* TABLE: the table */
} weft_help_section;

enum { WEFT_HELP_SECTIONS = 96 };

/* Fills `out` in the order of the help and returns the number of sections. */
int weft_help_sections(const weft_verb *verb, weft_help_section out[WEFT_HELP_SECTIONS]);
/* Returns the group of an option: "options" unless it is one of the verb's groups. */
const char *weft_help_group(const weft_verb *verb, const weft_option *option);
/* Returns option number `i` of a verb, including --set and --help, which every verb may omit from
 * its table; NULL after the last. */
const weft_option *weft_help_option(const weft_verb *verb, int i);
/* Returns the length of the first clause of a help text: the text before the first semicolon or the
 * end of the first sentence. */
int weft_help_clause(const char *text);

#endif
