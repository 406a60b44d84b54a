/* weft simulate serve --degrees: videos that share devices. */
#ifndef WEFT_CLI_SIMULATE_DEVICES_H
#define WEFT_CLI_SIMULATE_DEVICES_H

#include "cli/options/args.h"
#include "plan/queue/queue_trace.h"

/* Reads an option such as "10,60,300": *count numbers above 0. */
weft_status weft_simulate_read_list(const weft_args *args, const char *option,
                                    double values[WEFT_QUEUE_TRACE_LIST], int *count);
/* Replays the trace `trace` with the table of --degrees under all policies of elastic_policy.h. */
weft_status weft_simulate_devices(const weft_args *args, const char *trace);

#endif
