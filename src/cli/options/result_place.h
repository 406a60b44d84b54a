/* A result of a verb that goes to a bucket. */
#ifndef WEFT_CLI_OPTIONS_RESULT_PLACE_H
#define WEFT_CLI_OPTIONS_RESULT_PLACE_H

#include "cli/options/verb.h"

typedef struct weft_result_place weft_result_place;
/* `location`: borrowed. Receives earlier files where the verb may read them (weft_result). */
weft_status weft_result_place_open(const char *location, weft_result kind,
                                   weft_result_place **place);
const char *weft_result_place_path(const weft_result_place *place); /* borrowed */
const char *weft_result_place_location(const weft_result_place *place);
/* The folder that ranks on other machines must see, as they write files there. NULL: none. */
const char *weft_result_place_folder(const weft_result_place *place);
/* Sends the files, in rank 0 only. `done`: the verb has succeeded. The files of this machine are
 * removed by the close then. Without `done`, folders are sent with all that they have. */
weft_status weft_result_place_send(weft_result_place *place, bool done);
void weft_result_place_close(weft_result_place *place); /* accepts NULL */

#endif
