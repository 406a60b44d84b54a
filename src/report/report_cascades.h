/* Report page of a run with cascades (docs/explanation/cascades.md): one iteration as planned and
 * as executed, and over all iterations the idle ranks, gaps, modules and errors of the predicted
 * costs. */
#ifndef WEFT_REPORT_REPORT_CASCADES_H
#define WEFT_REPORT_REPORT_CASCADES_H

#include "draw/html.h"

/* Appends the page of <folder>/cascades/iterations.jsonl; nothing if the file does not exist. */
weft_status weft_report_cascades(const char *name, const char *folder, weft_buf *page);

#endif
