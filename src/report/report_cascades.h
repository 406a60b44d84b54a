/* The page of a run of cascades (docs/cascades.md): one iteration as planned and as executed, and
 * over all of them idle ranks, gaps, modules and how far costs were off. */
#ifndef WEFT_GENERATE_RUN_CASCADES_H
#define WEFT_GENERATE_RUN_CASCADES_H

#include "format/html.h"

/* From <folder>/cascades/iterations.jsonl; nothing, where there is none. */
weft_status weft_report_cascades(const char *name, const char *folder, weft_buf *page);

#endif
