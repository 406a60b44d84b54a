#include "cli/run_verb.h"

#include "base/interrupt.h"
#include "cli/options/args.h"
#include "cli/options/help.h"
#include "cli/options/print_once.h"

#include <stdio.h>

int weft_print_and_free(weft_buf *text)
{
    int code =
        text->failed || fwrite(text->data, 1, (size_t)text->len, stdout) != (size_t)text->len;
    weft_buf_free(text);
    return code ? WEFT_EXIT_FAILED : WEFT_EXIT_DONE;
}

static int exit_code(const weft_verb *verb, const weft_args *args, weft_status_code status)
{
    if (status == WEFT_OK)
        return WEFT_EXIT_DONE;
    if (status == WEFT_E_COMM) /* each rank reports the failed rank */
        weft_print_own(verb->name);
    else if (weft_error_message()[0]) /* else another rank prints it */
        weft_print_once(verb->name, status == WEFT_E_ARG || status == WEFT_E_CONFIG);
    if (status == WEFT_E_CANCELLED)
        return WEFT_EXIT_STOPPED;
    return !args || weft_args_refused(args) ? WEFT_EXIT_USAGE : WEFT_EXIT_FAILED;
}

int weft_run_verb(const weft_verb *verb, int argc, char *const *argv)
{
    weft_args *args;
    weft_status_code status = weft_args_parse(verb, argc, argv, &args);
    if (status != WEFT_OK)
        return exit_code(verb, NULL, status);
    int code;
    if (weft_args_help(args)) {
        weft_buf text = {0};
        status = weft_help_write(verb, weft_args_help(args), &text);
        code = status == WEFT_OK ? weft_print_and_free(&text) : exit_code(verb, NULL, status);
        weft_buf_free(&text);
    } else {
        if (verb->stops_cleanly)
            weft_interrupt_catch();
        status = verb->run(args);
        status = weft_args_send(args, status);
        /* a full disk or a closed pipe of standard output is a failure too */
        if (fflush(stdout) != 0 && status == WEFT_OK)
            status = weft_error_errno(WEFT_NOWHERE, "cannot write standard output");
        code = exit_code(verb, args, status);
    }
    weft_args_free(args);
    return code;
}
