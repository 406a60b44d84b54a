#ifndef WEFT_CLI_OPTIONS_HELP_FAMILIES_H
#define WEFT_CLI_OPTIONS_HELP_FAMILIES_H

#include "cli/options/verb.h"

/* The model classes with the fields of their configs; an entry is a class. */
extern const weft_help_table weft_help_families[];

#endif
