/* Credentials from a command, a container's endpoint or instance metadata, and how long they last.
 */
#ifndef WEFT_STORAGE_AWS_CREDENTIALS_H
#define WEFT_STORAGE_AWS_CREDENTIALS_H

#include "storage/aws_config.h"
#include "storage/http.h"

/* Strings are owned. No message contains them. */
typedef struct weft_aws_credentials {
    char *access_key, *secret_key, *session_token; /* session_token NULL: none */
    int64_t expires;                               /* seconds since 1970; INT64_MAX: never */
} weft_aws_credentials;

/* Reads the credentials of the settings' source. WEFT_E_NOT_FOUND: the source has none. */
weft_status weft_aws_credentials_read(const weft_aws_settings *settings, weft_http *http,
                                      weft_aws_credentials *credentials);
/* Reads the JSON text of credential_process, of a container or of instance metadata. `location` is
 * in messages. */
weft_status weft_aws_credentials_parse(const char *json, int64_t bytes, const char *location,
                                       weft_aws_credentials *credentials);
void weft_aws_credentials_free(weft_aws_credentials *credentials);

#endif
