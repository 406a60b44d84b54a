/* Settings of the AWS tools: which of the places wins, and errors that name the place. */
#include "storage/aws_config.h"

#include "base/fs.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char root[] = "/tmp/weft-aws-XXXXXX";
static weft_arena *arena;
static weft_aws_settings s;

static void setup(void)
{
    static const char *const names[] = {"AWS_PROFILE",
                                        "AWS_DEFAULT_PROFILE",
                                        "AWS_ACCESS_KEY_ID",
                                        "AWS_SECRET_ACCESS_KEY",
                                        "AWS_SESSION_TOKEN",
                                        "AWS_REGION",
                                        "AWS_DEFAULT_REGION",
                                        "AWS_ENDPOINT_URL",
                                        "AWS_ENDPOINT_URL_S3",
                                        "AWS_MAX_ATTEMPTS",
                                        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                                        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                                        "AWS_EC2_METADATA_DISABLED",
                                        "WEFT_S3_UNSIGNED",
                                        "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
                                        "AWS_EC2_METADATA_SERVICE_ENDPOINT",
                                        "AWS_CONFIG_FILE",
                                        "AWS_SHARED_CREDENTIALS_FILE"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unsetenv(names[i]);
    cr_assert(mkdtemp(root));
    setenv("HOME", root, 1);
    arena = weft_arena_create();
}

static void teardown(void)
{
    weft_arena_free(arena);
    (void)!weft_remove_tree(root);
}

static void write_file(const char *name, const char *text)
{
    char path[200];
    snprintf(path, sizeof path, "%s/.aws/%s", root, name);
    cr_assert_eq(weft_make_parent(path), WEFT_OK);
    cr_assert_eq(weft_file_write_atomic(path, text, (int64_t)strlen(text)), WEFT_OK);
}

static weft_status_code read_settings(void)
{
    return weft_aws_settings_read(arena, &s);
}

static const char credentials[] = "# a comment\n"
                                  "[default]\n"
                                  "aws_access_key_id = KEY1\n"
                                  "aws_secret_access_key=SECRET1\n"
                                  "\n"
                                  "[lab]\r\n"
                                  "aws_access_key_id = KEY2\r\n"
                                  "aws_secret_access_key = SE/CR=ET2\r\n"
                                  "aws_session_token = TOKEN2\r\n";

Test(aws_config, credentials_file, .init = setup, .fini = teardown)
{
    write_file("credentials", credentials);
    cr_assert_eq(read_settings(), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(s.source, WEFT_AWS_KEYS);
    cr_assert_str_eq(s.access_key, "KEY1");
    cr_assert_null(s.session_token);
    cr_assert_str_eq(s.region, "us-east-1");
    cr_assert(!s.endpoint && !s.path_style && s.attempts == 8);
    setenv("AWS_PROFILE", "lab", 1);
    cr_assert_eq(read_settings(), WEFT_OK, "%s", weft_error_message());
    cr_assert_str_eq(s.access_key, "KEY2");
    cr_assert_str_eq(s.secret_key, "SE/CR=ET2");
    cr_assert_str_eq(s.session_token, "TOKEN2");
    setenv("AWS_ACCESS_KEY_ID", "KEY3", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "SECRET3", 1);
    cr_assert_eq(read_settings(), WEFT_OK);
    cr_assert_str_eq(s.access_key, "KEY3");
    cr_assert_null(s.session_token);
}

Test(aws_config, endpoints_of_profiles_services_and_variables, .init = setup, .fini = teardown)
{
    write_file("credentials", credentials);
    write_file("config", "[default]\n"
                         "region = eu-west-1\n"
                         "endpoint_url = http://general:1/\n"
                         "[profile  lab]\n"
                         "services = own\n"
                         "max_attempts = 3\n"
                         "s3 =\n"
                         "    addressing_style = virtual\n"
                         "region = eu-north-1\n"
                         "[services own]\n"
                         "dynamodb =\n"
                         "  endpoint_url = http://wrong:2\n"
                         "s3 = \n"
                         "  endpoint_url = https://special:3\n");
    cr_assert_eq(read_settings(), WEFT_OK, "%s", weft_error_message());
    cr_assert_str_eq(s.endpoint, "http://general:1");
    cr_assert_str_eq(s.region, "eu-west-1");
    cr_assert(s.path_style);
    setenv("AWS_PROFILE", "lab", 1);
    cr_assert_eq(read_settings(), WEFT_OK, "%s", weft_error_message());
    cr_assert_str_eq(s.endpoint, "https://special:3");
    cr_assert_str_eq(s.region, "eu-north-1");
    cr_assert(!s.path_style && s.attempts == 3);
    setenv("AWS_ENDPOINT_URL", "http://variable:4", 1);
    setenv("AWS_REGION", "ap-east-1", 1);
    setenv("AWS_MAX_ATTEMPTS", "5", 1);
    cr_assert_eq(read_settings(), WEFT_OK);
    cr_assert_str_eq(s.endpoint, "http://variable:4");
    cr_assert_str_eq(s.region, "ap-east-1");
    cr_assert_eq(s.attempts, 5);
    setenv("AWS_ENDPOINT_URL_S3", "http://s3:5//", 1);
    cr_assert_eq(read_settings(), WEFT_OK);
    cr_assert_str_eq(s.endpoint, "http://s3:5");
    setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true", 1);
    cr_assert_eq(read_settings(), WEFT_OK);
    cr_assert_null(s.endpoint);
}

Test(aws_config, other_sources, .init = setup, .fini = teardown)
{
    cr_assert_eq(read_settings(), WEFT_OK);
    cr_assert_eq(s.source, WEFT_AWS_INSTANCE);
    cr_assert_str_eq(s.instance, "http://169.254.169.254");
    setenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/x", 1);
    cr_assert_eq(read_settings(), WEFT_OK);
    cr_assert_eq(s.source, WEFT_AWS_CONTAINER);
    cr_assert_str_eq(s.container, "http://169.254.170.2/v2/x");
    write_file("config", "[default]\ncredential_process = tool --get\n");
    cr_assert_eq(read_settings(), WEFT_OK);
    cr_assert_eq(s.source, WEFT_AWS_PROCESS);
    cr_assert_str_eq(s.process, "tool --get");
    setenv("WEFT_S3_UNSIGNED", "1", 1);
    cr_assert_eq(read_settings(), WEFT_OK);
    cr_assert_eq(s.source, WEFT_AWS_UNSIGNED);
}

Test(aws_config, errors_name_the_place_and_no_secret, .init = setup, .fini = teardown)
{
    setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    cr_assert_eq(read_settings(), WEFT_E_NOT_FOUND);
    cr_assert_eq(weft_error_class(), WEFT_MSG_STORAGE_CREDENTIALS);
    write_file("config", "[default]\nrole_arn = arn:aws:iam::1:role/x\n");
    cr_assert_eq(read_settings(), WEFT_E_CONFIG);
    cr_assert_str_eq(weft_error_fields()->key, "role_arn");
    setenv("AWS_SECRET_ACCESS_KEY", "SECRET3", 1);
    cr_assert_eq(read_settings(), WEFT_E_CONFIG);
    cr_assert(!strstr(weft_error_message(), "SECRET3"), "%s", weft_error_message());
    setenv("AWS_PROFILE", "none", 1);
    cr_assert_eq(read_settings(), WEFT_E_CONFIG);
    cr_assert_str_eq(weft_error_fields()->value, "none");
    unsetenv("AWS_PROFILE");
    setenv("AWS_ENDPOINT_URL_S3", "host:1", 1);
    cr_assert_eq(read_settings(), WEFT_E_CONFIG);
    cr_assert_str_eq(weft_error_fields()->key, "AWS_ENDPOINT_URL_S3");
}

Test(aws_config, allocations_that_fail, .init = setup, .fini = teardown)
{
    write_file("credentials", credentials);
    for (int64_t n = 1;; n++) {
        weft_alloc_fail_at(n);
        const weft_status_code status = read_settings();
        weft_alloc_fail_at(0);
        if (status == WEFT_OK)
            break;
        cr_assert_eq(status, WEFT_E_MEMORY, "allocation %d: %s", (int)n, weft_error_message());
    }
}

/* The forms that the AWS tools read: a byte order mark, "key: value", quoted names, and a default
 * profile of either name, the later of which replaces the other. */
Test(aws_config, forms_of_the_aws_tools, .init = setup, .fini = teardown)
{
    write_file("credentials", "\xef\xbb\xbf[my lab]\n"
                              "aws_access_key_id: KEY5\n"
                              "aws_secret_access_key : S:E=C\n"
                              "[default]\naws_access_key_id=A\naws_secret_access_key=B\n");
    write_file("config", "\xef\xbb\xbf[default]\n"
                         "region = eu-west-1\n"
                         "max_attempts = 3\n"
                         "[profile default]\n"
                         "region: eu-west-2\n"
                         "[profile \"my lab\"]\n"
                         "region = eu-west-3\n"
                         "[profile 'quoted']\n"
                         "region = eu-west-4\n"
                         "[profile two words]\n"
                         "region = eu-west-5\n"
                         "[profile \"open]\n"
                         "region = eu-west-6\n");
    cr_assert_eq(read_settings(), WEFT_OK, "%s", weft_error_message());
    cr_assert_str_eq(s.region, "eu-west-2");
    cr_assert_eq(s.attempts, 8, "the first section is replaced");
    setenv("AWS_PROFILE", "my lab", 1);
    cr_assert_eq(read_settings(), WEFT_OK, "%s", weft_error_message());
    cr_assert_str_eq(s.region, "eu-west-3");
    cr_assert_str_eq(s.access_key, "KEY5");
    cr_assert_str_eq(s.secret_key, "S:E=C");
    setenv("AWS_ACCESS_KEY_ID", "KEY3", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "SECRET3", 1);
    setenv("AWS_PROFILE", "quoted", 1);
    cr_assert_eq(read_settings(), WEFT_OK, "%s", weft_error_message());
    cr_assert_str_eq(s.region, "eu-west-4");
    static const char *const ignored[] = {"two words", "two", "open", "\"open"};
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++) {
        setenv("AWS_PROFILE", ignored[i], 1);
        cr_expect_eq(read_settings(), WEFT_E_CONFIG, "%s", ignored[i]);
    }
}
