/* The phase of a curation that requests captions of written clips. Private to curate/.
 *
 * OUT/captions/ID.json has the record of a clip: its caption with the raw replies, or the reason of
 * a failure, which the next run tries again. */
#ifndef WEFT_CURATE_CURATE_CAPTIONS_H
#define WEFT_CURATE_CURATE_CAPTIONS_H

#include "curate/curate_plan.h"

/* Record of a clip's caption by the server and prompt of the config; new reference. NULL: none. */
json_t *weft_curate_captions_read(const weft_curate_plan *plan, const char *id);
/* Adds a caption, with the texts of captions.append, to the metadata of a clip, which has the
 * scores. */
void weft_curate_captions_add(const weft_curate_plan *plan, const json_t *record, json_t *meta);
/* Requests the captions of this run's clips that have none. Clips without a reply have a reason in
 * their record, and are counted in a warning. WEFT_E_IO: the server refuses all requests. */
weft_status weft_curate_captions_run(weft_curate_plan *plan, weft_curate_report *report);

#endif
