/* Notice of a command that another one replaces. */
#ifndef WEFT_CLI_REPLACED_VERB_H
#define WEFT_CLI_REPLACED_VERB_H

/* Prints "`NOW` replaces `OLD`" (message option-renamed) on rank 0. */
void weft_print_replaced(const char *old, const char *now);

#endif
