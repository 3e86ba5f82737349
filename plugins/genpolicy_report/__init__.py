"""Writes the report page: one table and one page of everything that can be measured."""

from genpolicy.cli import Command

REPORT = Command("measure everything and write one page", "genpolicy_report.command:add_report_parser")
