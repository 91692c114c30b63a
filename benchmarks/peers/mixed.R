# Mixed models by R's packages: one contestant on one problem, answered in lines of JSON.
#
#     Rscript mixed.R FOLDER CONTESTANT FAMILY FORMULA COLUMN:KIND ...
#
# Columns are files of 8-byte numbers, or of 4-byte codes of groups; the first line says that all is loaded.

arguments <- commandArgs(trailingOnly = TRUE)
folder <- arguments[1]
contestant <- arguments[2]
family <- arguments[3]
formula <- as.formula(arguments[4])

package <- if (contestant == "glmmTMB") "glmmTMB" else "lme4"
suppressPackageStartupMessages(library(package, character.only = TRUE))

column <- function(described) {
  parts <- strsplit(described, ":")[[1]]
  path <- file.path(folder, paste0(parts[1], ".bin"))
  if (parts[2] == "group") {
    factor(readBin(path, "integer", n = file.size(path) / 4, size = 4))
  } else {
    readBin(path, "double", n = file.size(path) / 8, size = 8)
  }
}
described <- arguments[-(1:4)]
rows <- as.data.frame(lapply(setNames(described, sub(":.*", "", described)), column))

say <- function(...) {
  cat(sprintf(...), "\n", sep = "")
  flush(stdout())
}
numbers <- function(values) {
  paste0("{", paste0('"', names(values), '": ', sprintf("%.10g", values), collapse = ", "), "}")
}
say('{"version": "%s %s, R %s.%s"}', package, packageVersion(package), R.version$major, R.version$minor)

started <- proc.time()
fit <- switch(contestant,
  "lme4 lmer" = lmer(formula, rows),
  "lme4 glmer" = glmer(formula, rows, family = family),
  "lme4 glmer, nAGQ = 0" = glmer(formula, rows, family = family, nAGQ = 0),
  "lme4 glmer, nAGQ = 9" = glmer(formula, rows, family = family, nAGQ = 9),
  "glmmTMB" = glmmTMB(formula, rows, family = if (family == "linear") gaussian() else family)
)
spent <- proc.time() - started

if (package == "glmmTMB") {
  fixed <- fixef(fit)$cond
  errors <- sqrt(diag(vcov(fit)$cond))
  parts <- VarCorr(fit)$cond
  noise <- sigma(fit)
} else {
  fixed <- fixef(fit)
  errors <- sqrt(diag(as.matrix(vcov(fit))))
  parts <- VarCorr(fit)
  noise <- sigma(fit)
}
scales <- sapply(parts, function(part) attr(part, "stddev")[[1]])
if (family == "linear") scales <- c(scales, sigma = noise)
names(fixed) <- names(errors) <- sub("(Intercept)", "Intercept", names(fixed), fixed = TRUE)
say('{"seconds": %.4f, "processor_seconds": %.4f, "coefficients": %s, "standard_errors": %s, "scales": %s}',
    spent[["elapsed"]], spent[["user.self"]] + spent[["sys.self"]], numbers(fixed), numbers(errors), numbers(scales))
